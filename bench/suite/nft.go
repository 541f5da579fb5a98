// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/shuntnet/shunt/internal/lab"
)

// Nftables opens nf_tables in a namespace until the end of the section: a change by it is one system call.
func Nftables(b *Bench, ns *lab.NS) (*nftables.Conn, error) {
	file, err := os.Open(ns.Path())
	if err != nil {
		return nil, err
	}
	b.Later(file.Close)
	conn, err := nftables.New(nftables.WithNetNSFd(int(file.Fd())), nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("opening nf_tables: %w", err)
	}
	b.Later(conn.CloseLasting)
	return conn, nil
}

// Offsets of the addresses in an IPv4 header.
const (
	NftSource      = 12
	NftDestination = 16
)

// NftDrop is a rule that drops packets by one of their IPv4 addresses.
func NftDrop(table *nftables.Table, chain *nftables.Chain, which uint32, addr []byte) *nftables.Rule {
	return &nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: which, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: addr},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}}
}
