// SPDX-License-Identifier: Apache-2.0

// Package vm runs shunt's tests on other kernels than the one at hand.
//
// What shunt may rely on differs from kernel to kernel, and a kernel that refuses a program does so
// only when asked. So the tests themselves go there: vm.sh boots a Debian kernel in an emulated
// machine whose whole file system is an initramfs, runs the statically linked test binaries of the
// packages listed in the file packages, and report turns what they print into a record. Nothing is
// installed, no disk image and no network outside the machine is involved, and a machine leaves nothing behind
// but its results.
//
// The package's own tests are the smallest of that kind: they tell that the machine, its kernel and
// the library that loads programs work together, before anything of shunt's is blamed. They run
// only inside such a machine. docs/other-kernels.md is the guide.
package vm
