#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# find-go.sh: print the folder of a Go that can build shunt. Status 1 if there is none.
#
# Any Go from 1.21 on will do: it fetches the release that go.mod asks for by itself. `sudo` resets
# PATH, and distributions keep newer releases beside /usr/bin/go, so the usual places are tried too.
set -eu

for go in $(command -v go || true) /usr/local/go/bin/go /usr/lib/go-1.*/bin/go /snap/bin/go ${SUDO_USER:+"/home/$SUDO_USER/go/bin/go"}; do
	[ -x "$go" ] || continue
	minor=$(GOTOOLCHAIN=local "$go" version 2>/dev/null | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
	if [ "${minor:-0}" -ge 21 ]; then
		dirname "$go"
		exit 0
	fi
done
exit 1
