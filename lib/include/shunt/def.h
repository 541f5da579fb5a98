/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * What every header of this library is written with. It needs nothing but the kernel's types: <linux/bpf.h> or a vmlinux.h, whichever
 * was included before, or else <linux/types.h>.
 *
 * Habits of all headers:
 *   - Functions are inline, take pointers into memory that the caller owns (a map's value, a global, an arena), and allocate nothing.
 *   - Sizes are powers of two and known when the program is compiled; indexes are masked, so the verifier needs no branch.
 *   - Zeroed memory is an empty structure unless the header says otherwise.
 *   - Nothing is locked. A structure belongs to one CPU (a per-CPU map) or to the holder of a lock; what may be shared says so.
 */
#ifndef SHUNT_LIB_DEF_H
#define SHUNT_LIB_DEF_H

#if !defined(__VMLINUX_H__) && !defined(_LINUX_TYPES_H)
#include <linux/types.h>
#endif

#define SHUNT_FN static inline __attribute__((__always_inline__, __unused__))

/*
 * SHUNT_MASK: x & mask, by an instruction that the compiler can neither remove nor move. It removes a mask that it can prove needless
 * and narrows one that it can prove too wide; the verifier cannot follow such proofs and refuses the access. The mask has to be constant
 * after inlining. Cost: one instruction.
 */
#ifdef __bpf__
#define SHUNT_MASK(x, mask) ({					\
	__u64 __x = (x);					\
	asm volatile("%0 &= %1" : "+r"(__x) : "i"(mask));	\
	__x;							\
})
#else
#define SHUNT_MASK(x, mask) ((__u64)(x) & (mask))
#endif

/* SHUNT_HIDE: the same value, of which the compiler no longer knows where it came from. */
#define SHUNT_HIDE(x) asm volatile("" : "+r"(x))

/* Words as which memory of any type may be read: through a plain __u64 * a compiler need not see what was stored as something else. */
typedef __u64 __attribute__((may_alias)) shunt_any64;
typedef __u32 __attribute__((may_alias)) shunt_any32;

#define SHUNT_IS_POW2(n) ((n) > 0 && ((n) & ((n) - 1)) == 0)
#define SHUNT_ASSERT_POW2(n) _Static_assert(SHUNT_IS_POW2(n), #n " has to be a power of two")

/*
 * SHUNT_CHECK: a condition on parameters, which inlining makes constants. One that is false does not compile, nor does one that is not known
 * then: a call is left over to a function that does not exist, and the compiler gives its message. Cost: nothing. Without optimization, with
 * which no BPF is compiled, nothing is checked.
 */
#ifdef __OPTIMIZE__
#define SHUNT_CHECK_BY(function, condition, message) do {			\
	extern void function(void) __attribute__((error(message)));		\
	if (!(condition))							\
		function();							\
} while (0)
#define SHUNT_CHECK_NUMBERED(number, condition, message) SHUNT_CHECK_BY(shunt_check_##number, condition, message)
#define SHUNT_CHECK_EXPANDED(number, condition, message) SHUNT_CHECK_NUMBERED(number, condition, message)
#define SHUNT_CHECK(condition, message) SHUNT_CHECK_EXPANDED(__COUNTER__, condition, message)
#else
#define SHUNT_CHECK(condition, message) do { } while (0)
#endif

#endif
