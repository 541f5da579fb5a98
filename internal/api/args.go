// SPDX-License-Identifier: Apache-2.0

package api

// ShowArgs are the arguments of VerbShow.
type ShowArgs struct {
	What   string `json:"what"`             // ShowGraph …
	Format string `json:"format,omitempty"` // of ShowGraph: "" (graph.Graph), "text", "dot", "svg" (a string each)
}

// The subjects of VerbShow, with the type of the answer's data. Interfaces are in the status.
const (
	ShowGraph      = "graph"      // graph.Graph
	ShowReasons    = "reasons"    // []ReasonRow
	ShowPrograms   = "programs"   // []ProgramRow
	ShowEvents     = "events"     // []Event
	ShowNeighbours = "neighbours" // []NeighbourRow
	ShowRules      = "rules"      // Rules
	ShowFlows      = "flows"      // Flows; asking begins to sample, which ends some seconds after nobody asks
)

// ExplainArgs are the arguments of VerbExplain.
type ExplainArgs struct {
	Interface string `json:"interface"`
	Packet    string `json:"packet"` // a description or hex, see internal/packet
}

// PauseArgs are the arguments of VerbPause and VerbResume.
type PauseArgs struct {
	Interface string `json:"interface,omitempty"` // "" for all
}

// StopArgs are the arguments of VerbStop.
type StopArgs struct {
	Detach bool `json:"detach,omitempty"` // remove everything from the kernel
}

// Stopped is the answer to VerbStop, sent when everything has ended but the process.
type Stopped struct {
	PID      int  `json:"pid"`
	Detached bool `json:"detached"`
}
