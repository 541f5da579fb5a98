// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/lab"
)

// Case is a configuration and what happens to it. It is a value: two runs of one
// case send the same bytes.
type Case struct {
	Name   string `json:"name"`
	Seed   uint64 `json:"seed,omitempty"`   // what the generator made it from; 0 for cases written by hand
	Hook   string `json:"hook"`             // "xdp", "tc" or "auto": shunt's --hook
	Tier   string `json:"tier,omitempty"`   // "generic": shunt keeps to programs that serve every port; "both": it has them from the start
	Late   bool   `json:"late,omitempty"`   // shunt starts after the first step's commands
	Strict bool   `json:"strict,omitempty"` // shunt's --strict
	Wires  string `json:"wires,omitempty"`  // ports that --hook auto takes for cards (globs), so that XDP and tc may both serve one
	Steps  []Step `json:"steps"`            // in order
	Exact  bool   `json:"exact,omitempty"`  // at XDP, what is in the packets alone decides by which reason they leave; predict.go says which
	Slow   Excuse `json:"slow"`             // what the configuration lets shunt leave to Linux
	Why    string `json:"why,omitempty"`    // for people: what the case is about
}

// Step is some commands, run in order in the router, and then some frames.
type Step struct {
	// Commands are words and their arguments; what follows on further lines is a command's standard input.
	Commands []string `json:"commands,omitempty"`
	// Immediate sends the frames without waiting for shunt after the commands: for
	// changes that must hold from the very next packet on.
	Immediate bool `json:"immediate,omitempty"`
	// Frozen stops shunt's process before the commands and lets it go on after the frames have left.
	Frozen bool `json:"frozen,omitempty"`
	// Killed kills shunt's process before the commands and starts another after the frames have left.
	Killed bool `json:"killed,omitempty"`
	// Alone has each packet leave when the one before has been dealt with (see injection.add).
	Alone   bool     `json:"alone,omitempty"`
	Packets []Packet `json:"packets,omitempty"`
}

// Packet is a frame for one port.
type Packet struct {
	Port  int    `json:"port"`
	How   How    `json:"how"`
	Frame []byte `json:"-"`
	// GSO is the payload bytes per segment of a frame sent with How Offload.
	GSO uint16 `json:"gso,omitempty"`
	// Merge says that GRO may merge the frame with its neighbours, so that counters count them once.
	Merge bool `json:"merge,omitempty"`
}

// How is the way in which a frame enters the router.
type How string

// The ways.
const (
	WireFrame How = "wire"    // as an XDP frame, as from a NIC
	SKB       How = "skb"     // as a socket buffer, as from a container
	Offload   How = "offload" // as a socket buffer whose checksum or segmentation is still to be done
)

type packetJSON struct {
	Port int    `json:"port"`
	How  How    `json:"how"`
	GSO  uint16 `json:"gso,omitempty"`
	Mrg  bool   `json:"merge,omitempty"`
	Text string `json:"text"`
	Hex  string `json:"hex"`
}

// MarshalJSON writes the frame in hex, with a description.
func (p Packet) MarshalJSON() ([]byte, error) {
	return json.Marshal(packetJSON{p.Port, p.How, p.GSO, p.Merge, lab.Describe(p.Frame), hex.EncodeToString(p.Frame)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Packet) UnmarshalJSON(data []byte) error {
	var j packetJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	frame, err := hex.DecodeString(j.Hex)
	*p = Packet{Port: j.Port, How: j.How, GSO: j.GSO, Merge: j.Mrg, Frame: frame}
	return err
}

// String is the packet in one line.
func (p Packet) String() string {
	s := fmt.Sprintf("p%d by %s: %s", p.Port, p.How, lab.Describe(p.Frame))
	if p.GSO > 0 {
		s += fmt.Sprintf(", segments of %d", p.GSO)
	}
	return s
}

// Size counts commands and packets.
func (c *Case) Size() (commands, packets int) {
	for _, s := range c.Steps {
		commands += len(s.Commands)
		packets += len(s.Packets)
	}
	return commands, packets
}

// Script is the case for a person at a keyboard: what to type in the router, and
// which frames to send.
func (c *Case) Script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s (seed %d, --hook %s%s%s)\n", c.Name, c.Seed, c.Hook, map[bool]string{true: " --strict"}[c.Strict], inTier(c.Tier))
	if c.Wires != "" {
		fmt.Fprintf(&b, "# SHUNT_WIRES=%q\n", c.Wires)
	}
	for i, s := range c.Steps {
		fmt.Fprintf(&b, "# step %d%s\n", i+1, map[bool]string{true: ", shunt killed before it and started again behind"}[s.Killed])
		for _, cmd := range s.Commands {
			b.WriteString(shellLine(cmd) + "\n")
		}
		for _, p := range s.Packets {
			fmt.Fprintf(&b, "#   send to %s\n#     %x\n", p, p.Frame)
		}
	}
	return b.String()
}

// shellLine turns a command of a case into one for a shell.
func shellLine(cmd string) string {
	if tool, input, ok := strings.Cut(cmd, "\n"); ok {
		return tool + " <<'END'\n" + strings.TrimSuffix(input, "\n") + "\nEND"
	}
	word, rest, _ := strings.Cut(cmd, " ")
	switch word {
	case "sysctl":
		return "sysctl -w " + rest
	case "nft":
		return "nft '" + rest + "'"
	case "listen":
		return tcpdumpLine(strings.Fields(rest))
	case "carrier":
		return "# the other end of the cable: " + rest
	case "drop-priority", "drop-mark":
		return "# a tc filter on the way out drops skb->" + strings.TrimPrefix(word, "drop-") + ": " + rest
	case "plain":
		return "# the other end of the cable takes no XDP frames: ip link set w" + rest + " xdp off"
	case "foreign":
		return "# another program is attached: " + rest + " (foreign.go)"
	case "socket":
		return "# a socket is opened: " + rest + " (sockets.go)"
	case "host":
		return "# a host answers: " + rest
	}
	return cmd
}

// tcpdumpLine is the command that listens as a case's listener does.
func tcpdumpLine(words []string) string {
	filter := words[2:]
	if words[1] != "all" {
		filter = append([]string{"ether proto 0x" + words[1], "and"}, filter...)[:max(1, 2*len(filter))]
	}
	if len(filter) == 0 {
		return "tcpdump -pni " + words[0] + " &"
	}
	return "tcpdump -pni " + words[0] + " '" + strings.Join(filter, " ") + "' &"
}

// Load reads a case from a file.
func Load(path string) (*Case, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("loading a case: %w", err)
	}
	c := &Case{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("loading case %s: %w", path, err)
	}
	return c, nil
}

// Save writes a case to a file.
func (c *Case) Save(path string) error {
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return fmt.Errorf("saving case %s: %w", c.Name, err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// inTier is the tier of programs that a case keeps to, in words.
func inTier(tier string) string {
	if tier == "" {
		return ""
	}
	if tier == string(datapath.Both) {
		return ", generic programs at once"
	}
	return ", " + tier + " tier only"
}
