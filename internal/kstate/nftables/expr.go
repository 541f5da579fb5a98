// SPDX-License-Identifier: Apache-2.0

package nftables

// Expr is one expression of a rule, as the kernel keeps it: *Payload, *Meta … or *Opaque.
type Expr any

// Reg is a register. The sixteen-byte registers 1 to 4 lie over the four-byte ones, so both are counted in four bytes.
type Reg int

// Verdict is the register that a verdict is put into.
const Verdict Reg = -1

const registers = 16

// Data is a value, or a verdict.
type Data struct {
	Bytes   []byte
	Verdict *VerdictData
}

// VerdictData is a verdict code (NF_ACCEPT, NFT_JUMP …) with its chain.
type VerdictData struct {
	Code  int32
	Chain string
}

// Op is a comparison (NFT_CMP_*).
type Op uint32

// The comparisons.
const (
	Eq Op = iota
	Neq
	Lt
	Lte
	Gt
	Gte
)

// The expressions. Dst and Src are registers; where Write is set, the expression writes Src into the packet or its metadata
// instead of reading into Dst.
type (
	Payload struct {
		Dst, Src          Reg
		Write             bool
		Base, Offset, Len uint32
		Checksum          [3]uint32 // type, offset, flags of a write
	}
	Meta struct {
		Key      uint32
		Dst, Src Reg
		Write    bool
	}
	CT struct {
		Key      uint32
		Dir      int // IP_CT_DIR_*, -1 for none
		Dst, Src Reg
		Write    bool
	}
	Cmp struct {
		Src  Reg
		Op   Op
		Data []byte
	}
	Range struct {
		Src      Reg
		Not      bool
		From, To []byte
	}
	// Bitwise: Dst = Src & Mask ^ Xor, or a shift by Shift; Src2 is a second register (6.12), NoReg where none.
	Bitwise struct {
		Src, Dst, Src2 Reg
		Len, Op        uint32
		Mask, Xor      []byte
		Shift          uint32
	}
	Byteorder struct {
		Src, Dst      Reg
		Op, Len, Size uint32
	}
	Immediate struct {
		Dst  Reg
		Data Data
	}
	Lookup struct {
		Set      string
		Src, Dst Reg
		Map      bool // Dst is given
		Not      bool
	}
	Dynset struct {
		Set       string
		Op        uint32
		Src, Data Reg // Data is NoReg where none
		Timeout   uint64
		Not       bool
		Exprs     []Expr
	}
	ExtHdr struct {
		Dst, Src               Reg
		Write, Present         bool
		Type                   uint8
		Offset, Len, Op, Flags uint32
	}
	FIB struct {
		Dst           Reg
		Result, Flags uint32
	}
	RT struct {
		Dst Reg
		Key uint32
	}
	Counter struct{ Packets, Bytes uint64 }
	Limit   struct {
		Rate, Unit         uint64
		Burst, Type, Flags uint32
	}
	Log struct {
		Prefix                string
		Group                 int // -1 for none
		Level, Flags, Snaplen uint32
		Threshold             uint16
	}
	Reject struct {
		Type uint32
		Code uint8
	}
	// NAT is nat, masq or redir. NoReg stands for a register that is not given.
	NAT struct {
		Kind               string // "snat", "dnat", "masquerade", "redirect"
		Family, Flags      uint32
		AddrMin, AddrMax   Reg
		ProtoMin, ProtoMax Reg
	}
	ObjRef struct {
		Type uint32
		Name string
		Set  string // map that gives the name for the value in Src
		Src  Reg
	}
	Quota struct {
		Bytes, Consumed uint64
		Flags           uint32
	}
	Queue struct {
		Num, Total, Flags uint16
		Src               Reg // NoReg where none
	}
	NumGen struct {
		Dst                   Reg
		Modulus, Type, Offset uint32
	}
	Hash struct {
		Dst, Src                         Reg
		Len, Modulus, Seed, Offset, Type uint32
	}
	ConnLimit struct{ Count, Flags uint32 }
	Socket    struct {
		Dst        Reg
		Key, Level uint32
	}
	NoTrack struct{}
	Last    struct {
		Used  bool
		Msecs uint64
	}
	FlowOffload struct{ Table string }
	// XT is a match or target of the old iptables in a rule of nf_tables.
	XT struct {
		Target   bool
		Name     string
		Revision uint32
		Info     []byte
	}
	// Opaque is an expression that is not understood, or whose attributes are not.
	Opaque struct{ Name, Why string }
)

// NoReg stands for a register that is not given.
const NoReg Reg = -2
