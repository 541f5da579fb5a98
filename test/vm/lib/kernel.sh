# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# kernel.sh: a kernel and its modules out of Debian's packages, unpacked and never installed.
#
# Newer packages are split (image, binary, modules, base); which ones belong together is read from
# the image package's dependencies. An archive may list an image whose modules it has already
# dropped: such a kernel is passed over.

readonly FLAVOUR=cloud-amd64

# Modules that tests may need, besides those that they depend on.
readonly MODULE_TREES='kernel/(net/(802|8021q|bridge|core|ife|ipv4|ipv6|key|l2tp|llc|mpls|netfilter|netlink|nsh|openvswitch|packet|psample|sched|unix|xdp|xfrm)/|drivers/net/([^/]*|bonding/.*|ipvlan/.*|team/.*|vmxnet3/.*|vxlan/.*|wireguard/.*)$|drivers/virtio/virtio_pci\.ko|fs/overlayfs/|crypto/|lib/|arch/x86/crypto/)'

# complete_kernels: a line "RELEASE PACKAGE…" for every kernel of our flavour that the archive has
# whole, oldest first. (linux-base is left out where it is missing: it only describes the kernel.)
complete_kernels() {
	local list=$CACHE/apt/kernels
	if [[ $CACHE/apt/updated -nt $list ]]; then
		debian_apt apt-cache dumpavail | awk -v image="^linux-image-[0-9].*-$FLAVOUR\$" '
			/^Package: linux-/ {package = $2; there[package] = 1}
			/^Package: [^l]/ {package = ""}
			/^Depends: / && package ~ image {depends[package] = $0}
			END {
				for (package in depends) {
					release = substr(package, length("linux-image-") + 1)
					line = release " " package
					n = split("base binary modules", parts, " ")
					for (i = 1; i <= n; i++) {
						part = "linux-" parts[i] "-" release
						if (!index(depends[package], part)) continue
						if (part in there) line = line " " part
						else if (parts[i] != "base") line = ""
						if (line == "") break
					}
					if (line != "") print line
				}
			}' | sort -V >"$list"
	fi
	cat "$list"
}

# find_kernel SERIES: the line of the newest kernel of 6.12, or of any 7 for 7.x.
find_kernel() {
	local pattern=${1//./\\.}
	complete_kernels | grep -E "^${pattern/%x/[0-9]+}[.-]" | tail -n 1
}

# need_kernel SERIES[|SERIES…]: prints the directory with vmlinuz, modules.cpio and release.
need_kernel() {
	local series kernel kept
	refresh_lists
	for series in ${1//|/ }; do
		[[ $series =~ ^[0-9]+\.([0-9]+|x)$ ]] || die "$STATUS_USAGE" "a kernel is 6.12 or 7.x, not \"$series\""
		if kernel=$(find_kernel "$series"); then
			# shellcheck disable=SC2086
			unpack_kernel $kernel >&2
			echo "$CACHE/kernels/${kernel%% *}"
			return
		fi
		# What was fetched once stays usable when the archive has moved on.
		kept=$(find "$CACHE/kernels" -path "*/${series/%x/*}[.-]*/release" 2>/dev/null | sort -V | tail -n 1)
		if [[ -n $kept ]]; then
			dirname "$kept"
			return
		fi
	done
	die "$STATUS_NO_KERNEL" "no complete kernel ${1//|/ or } in ${DEBIAN_SUITES[*]} of $(mirror); there are:" \
		"$(complete_kernels | grep -oE '^[0-9]+\.[0-9]+' | uniq | paste -sd' ')"
}

# unpack_kernel RELEASE PACKAGE…
unpack_kernel() {
	local release=$1 dir=$CACHE/kernels/$1 work image package
	shift
	# A folder that an earlier list of modules was packed for is made anew.
	if [[ -e $dir/release && -e $dir/trees && $(<"$dir/trees") == "$MODULE_TREES" ]]; then
		return
	fi
	say "fetching and unpacking Linux $release"
	rm -rf "$dir"
	mkdir -p "$dir/packages" "$dir/tree"
	work=$dir/tree
	(cd "$dir/packages" && debian_apt apt-get download "$@") ||
		die "$STATUS_NO_KERNEL" "could not fetch $* from $(mirror)"
	for package in "$dir"/packages/*.deb; do
		dpkg-deb --extract "$package" "$work"
	done
	if [[ -d $work/lib/modules ]]; then # packages from before /lib moved into /usr
		mkdir -p "$work/usr/lib"
		mv "$work/lib/modules" "$work/usr/lib/"
		rmdir "$work/lib"
	fi
	image=$(find "$work" -type f -name 'vmlinuz*')
	[[ -n $image ]] || die "$STATUS_NO_KERNEL" "no vmlinuz in the packages of $release"
	mv "$image" "$dir/vmlinuz"
	pack_modules "$work" "$release" "$dir/modules.cpio"
	rm -rf "$work" "$dir/packages"
	echo "$MODULE_TREES" >"$dir/trees"
	echo "$release" >"$dir/release"
}

# pack_modules TREE RELEASE OUT.cpio: the network modules with their dependencies, decompressed.
pack_modules() {
	local tree=$1 release=$2 out=$3 modules=usr/lib/modules/$2 stage
	stage=$(mktemp -d -p "$SCRATCH")
	find "$tree/$modules" -name '*.ko.xz' -exec xz --decompress {} +
	find "$tree/$modules" -name '*.ko.zst' -exec zstd --quiet --decompress --rm {} +
	ln -s usr/lib "$tree/lib"
	depmod -b "$tree" "$release"
	mkdir -p "$stage/$modules"
	find "$tree/$modules" -maxdepth 1 \( -name 'modules.builtin*' -o -name modules.order \) -exec cp -t "$stage/$modules" {} +
	awk -F': *' -v trees="$MODULE_TREES" '$1 ~ trees {print $1; n = split($2, d, " "); for (i = 1; i <= n; i++) print d[i]}' \
		"$tree/$modules/modules.dep" | sort -u | tar -C "$tree/$modules" -c -T - | tar -C "$stage/$modules" -x
	ln -s usr/lib "$stage/lib"
	depmod -b "$stage" "$release"
	rm "$stage/lib"
	pack "$stage" "$out"
}
