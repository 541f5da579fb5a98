// SPDX-License-Identifier: Apache-2.0

package control

import (
	"os"
	"time"
)

// What the tests allow for: an emulated machine (test/vm) takes a second for what takes milliseconds elsewhere.
var (
	watchdog = WatchdogLimit
	patience = 5 * time.Second        // until a change has taken effect
	quiet    = 150 * time.Millisecond // after which no more frames are to come
)

func init() {
	if os.Getenv("SHUNT_VM") != "" {
		watchdog, patience, quiet = 10*time.Second, 30*time.Second, time.Second
	}
}
