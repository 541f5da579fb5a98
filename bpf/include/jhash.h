/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's hash of words, Bob Jenkins' lookup3: include/linux/jhash.h. Its tables are walked here, so the same values are needed. */
#ifndef SHUNT_JHASH_H
#define SHUNT_JHASH_H

#define JHASH_INITVAL 0xdeadbeef

#define JHASH_ROL(x, n) ((x) << (n) | (x) >> (32 - (n)))

/* Three words more, and they are not the last. */
#define JHASH_MIX(a, b, c)				\
	do {						\
		a -= c; a ^= JHASH_ROL(c, 4); c += b;	\
		b -= a; b ^= JHASH_ROL(a, 6); a += c;	\
		c -= b; c ^= JHASH_ROL(b, 8); b += a;	\
		a -= c; a ^= JHASH_ROL(c, 16); c += b;	\
		b -= a; b ^= JHASH_ROL(a, 19); a += c;	\
		c -= b; c ^= JHASH_ROL(b, 4); b += a;	\
	} while (0)

/* The last ones; c is the hash. */
#define JHASH_FINAL(a, b, c)				\
	do {						\
		c ^= b; c -= JHASH_ROL(b, 14);		\
		a ^= c; a -= JHASH_ROL(c, 11);		\
		b ^= a; b -= JHASH_ROL(a, 25);		\
		c ^= b; c -= JHASH_ROL(b, 16);		\
		a ^= c; a -= JHASH_ROL(c, 4);		\
		b ^= a; b -= JHASH_ROL(a, 14);		\
		c ^= b; c -= JHASH_ROL(b, 24);		\
	} while (0)

#endif
