// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// linux/netfilter/nfnetlink_hook.h
const (
	nfnlHook = 12 // subsystem

	hookNum       = 1
	hookPriority  = 2
	hookDev       = 3
	hookFunction  = 4
	hookModule    = 5
	hookChainInfo = 6

	hookInfoDesc = 1
	hookInfoType = 2

	hookTypeNFT       = 1
	hookTypeBPF       = 2
	hookTypeFlowtable = 3

	hookDescTable  = 1
	hookDescFamily = 2
	hookDescName   = 3

	nfHeader = 4 // struct nfgenmsg
)

// rawHook is one registered hook function.
type rawHook struct {
	model.NFHook
	module string
	table  byte // family of the table that the chain is in
}

func decodeHook(b []byte, family model.Family) (h rawHook, err error) {
	if len(b) < nfHeader {
		return h, errors.New("hook message too short")
	}
	h.Family = family
	var typ uint32
	un := unknowns{}
	types, err := attrs(b[nfHeader:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case hookNum:
			h.Hook = hookName(family, be32(ad))
		case hookPriority:
			h.Priority = int(int32(be32(ad)))
		case hookDev:
			h.Device = ad.String()
		case hookFunction:
			h.Function = ad.String()
		case hookModule:
			h.module = ad.String()
		case hookChainInfo:
			return nested(ad, "chain info", &un, func(ad *netlink.AttributeDecoder) bool {
				switch ad.Type() {
				case hookInfoType:
					typ = be32(ad)
				case hookInfoDesc:
					return nested(ad, "chain description", &un, func(ad *netlink.AttributeDecoder) bool {
						switch ad.Type() {
						case hookDescTable:
							h.Table = ad.String()
						case hookDescFamily:
							if b := raw(ad); len(b) == 1 {
								h.table = b[0]
							}
						case hookDescName:
							h.Chain = ad.String()
						}
						return true // the rest depends on the type: a family, a BPF program id
					})
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	un.attributes("hook", types)
	h.Kind = classify(h.Function)
	switch typ {
	case 0:
	case hookTypeNFT:
		h.Kind = model.NFTables
	case hookTypeBPF:
		h.Kind = model.NFBPF
	case hookTypeFlowtable:
		h.Kind = model.Flowtable
	default:
		h.Kind = model.NFOther
	}
	for _, u := range un.list { // a hook with an unknown property is one that nobody explains
		h.Kind = model.NFOther
		h.Extra = append(h.Extra, u.What)
	}
	return h, err
}

// errNoHookList says that the kernel was built without nfnetlink_hook.
var errNoHookList = errors.New("the kernel cannot list netfilter hooks (CONFIG_NETFILTER_NETLINK_HOOK)")

// readHooks lists the registered hooks of all families, and those on devices.
func (r *Reader) readHooks(devices []string) (out []rawHook, err error) {
	dump := func(pf byte, num uint32, device string) error {
		family, _ := nfFamily(pf)
		from := len(out)
		attributes := body(nil, func(ae *netlink.AttributeEncoder) {
			ae.Bytes(hookNum, []byte{byte(num >> 24), byte(num >> 16), byte(num >> 8), byte(num)})
			if device != "" {
				ae.String(hookDev, device)
			}
		})
		err := r.ask("hooks", func() error {
			out = out[:from]
			return r.k.netlink(asked(nfnlHook, 0, pf, true, attributes), func(_ uint16, b []byte) error {
				h, err := decodeHook(b, family)
				if h.Device == "" {
					h.Device = device
				}
				out = append(out, h)
				return err
			})
		})
		if pf == nfIP4 && errors.Is(err, unix.EINVAL) {
			err = errNoHookList // so nfnetlink says that it has no such subsystem; IPv4 itself is always there
		}
		// A family or hook that this kernel was built without has no hooks; a device may be gone by now.
		if pf != nfIP4 && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EINVAL) ||
			errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)) {
			return nil
		}
		if err != nil && !errors.Is(err, errNoHookList) {
			return fmt.Errorf("listing netfilter hooks of family %s: %w", family, err)
		}
		return err
	}
	for _, f := range []struct {
		pf    byte
		hooks uint32
	}{{nfIP4, 5}, {nfIP6, 5}, {nfARP, 3}, {nfBridge, 6}} {
		for num := range f.hooks {
			if err := dump(f.pf, num, ""); err != nil {
				return out, err
			}
		}
	}
	for _, d := range devices {
		for num := range uint32(len(netdevHooks)) {
			if err := dump(nfNetdev, num, d); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// be32 reads a number in network order, as nfnetlink writes them.
func be32(ad *netlink.AttributeDecoder) uint32 {
	b := raw(ad)
	if len(b) != 4 {
		return 0
	}
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// walkHooks lists the hooks that forwarded packets pass where nfnetlink_hook is missing; those of bridges where there are any. A walk does not tell chains apart,
// only functions.
func (r *Reader) walkHooks(bridges bool) (out []rawHook, err error) {
	families := []model.Family{model.IP4, model.IP6}
	if bridges {
		families = append(families, model.BridgeFamily)
	}
	for _, f := range families {
		for num := range uint32(5) {
			walked, err := r.k.walk(f, num)
			if err != nil {
				return nil, err
			}
			for _, w := range walked {
				out = append(out, rawHook{NFHook: model.NFHook{Family: f, Hook: hookName(f, num), Priority: w.Priority, Kind: classify(w.Function), Function: w.Function}})
			}
		}
	}
	return out, nil
}
