# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# boot.sh: one machine: emulated processor, two cores, no disk, cards that reach nothing but each other, three serial ports.

readonly BOOT_LIMIT=120 # seconds until init runs, on a busy machine without KVM

# Emulation in software by default: it works and is the same everywhere. KVM is many times faster,
# but nested in another machine it may exist and still fail, so it has to be asked for.
readonly ACCEL=${SHUNT_VM_ACCEL:-tcg}

# Two wires, each between a host's card and one card of each driver that a router may have there (test/vm/cards). Nobody loads
# their drivers but the test that is about them. Their addresses say which is which: 52:54:00:WIRE:WHO:01.
readonly CARDS=(virtio-net-pci virtio-net-pci vmxnet3)

qemu_cards() { # sets NETWORK
	local wire who
	NETWORK=(-nic none)
	for wire in 1 2; do
		for who in "${!CARDS[@]}"; do
			NETWORK+=(-netdev "hubport,id=wire$wire-$who,hubid=$wire"
				-device "${CARDS[who]},netdev=wire$wire-$who,mac=52:54:00:0$wire:0$who:01")
		done
	done
}

qemu_version() { qemu-system-x86_64 --version | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p'; }

# qemu_command KERNEL_DIR INITRD APPEND: sets QEMU, the command line up to the serial ports.
qemu_command() {
	local dir=$1 initrd=$2 append=$3 cpu=max accel=$ACCEL
	if [[ $ACCEL == tcg ]]; then
		# QEMU 7.2 emulates cmpxchg16b wrongly once in a while: the kernel dies in its allocator.
		(($(qemu_version | cut -d. -f1) >= 10)) || cpu=max,-cx16
		accel=tcg,thread=multi
	fi
	cpu=${SHUNT_VM_CPU:-$cpu}
	qemu_cards
	# An emulated processor that waits for its host is no stalled one, and its timer is not broken.
	local kernel='console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off nowatchdog no_timer_check rcupdate.rcu_cpu_stall_timeout=120'
	QEMU=(qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -smp "${SHUNT_VM_CPUS:-2}" -m "${SHUNT_VM_MEM:-2048}"
		-display none -monitor none "${NETWORK[@]}" -no-reboot
		-kernel "$dir/vmlinuz" -initrd "$initrd" -append "$kernel $append")
}

# run_tests KERNEL_DIR NAME PAYLOAD LIMIT: boots, shows and records. Its status is that of the tests.
run_tests() {
	local dir=$1 name=$2 payload=$3 limit=$4 place=$RESULTS/$2 status=0
	rm -rf "$place"
	mkdir -p "$place/out"
	cat "$CACHE/base.cpio" "$dir/modules.cpio" "$payload" >"$SCRATCH/initrd"
	qemu_command "$dir" "$SCRATCH/initrd" ''
	say "booting Linux $(<"$dir/release") under QEMU $(qemu_version), $ACCEL"
	# In the foreground, so that whoever ends this run ends the machine with it.
	# The report speaks for the pipe: when QEMU is stopped or the kernel dies, the closing line is missing.
	{ timeout --foreground $((BOOT_LIMIT + limit)) "${QEMU[@]}" -serial "file:$place/console.log" -serial stdio \
		-serial "file:$SCRATCH/out.tar" </dev/null || true; } |
		"$SCRATCH/report" run -kernel "$name" -machine "QEMU $(qemu_version) $ACCEL" -dir "$place" || status=$?
	# A machine that died may have sent none of its files, or half of them.
	tar -C "$place/out" -xf "$SCRATCH/out.tar" 2>/dev/null || ((status == 99)) || die 1 "the tests' files did not arrive"
	return "$status"
}

# run_shell KERNEL_DIR PAYLOAD: the same machine with a shell on this terminal.
run_shell() {
	cat "$CACHE/base.cpio" "$1/modules.cpio" "$2" >"$SCRATCH/initrd"
	qemu_command "$1" "$SCRATCH/initrd" shunt.shell
	"${QEMU[@]}" -serial mon:stdio
}
