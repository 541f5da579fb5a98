#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# turn.sh [COMMAND…]: of what CI runs by turns (docs/rig.md, "What CI leaves out"), whose turn it is: a number made of the commit's name, so that commits
# take turns and the same commit always has the same. Prints it, or runs a command with SHUNT_TURN set to it.
set -euo pipefail
commit=$(git rev-parse HEAD 2>/dev/null || echo 0)
SHUNT_TURN=${SHUNT_TURN:-$((16#${commit:0:6}))}
if (($# == 0)); then
	echo "$SHUNT_TURN"
else
	export SHUNT_TURN
	exec "$@"
fi
