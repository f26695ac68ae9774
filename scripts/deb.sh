#!/usr/bin/env bash
# A Debian package of barco and of what it needs from PyPI, in dist/. It fits the Python that it is
# built with: that of .venv, whose minor version has to be the distribution's.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf 'deb: %s\n' "$*" >&2; }
command -v dpkg-deb >/dev/null || { say "no dpkg-deb here: apt-get install dpkg"; exit 1; }
scripts/dist.sh >build/dist-log || { cat build/dist-log; exit 1; }
# As it is built, not as it is given to others: OpenSSL is the distribution's, and so are its fixes.
wheel=$(ls build/dist-made/*.whl)
python=.venv/bin/python
minor=$($python -c 'import sys; print(sys.version_info[1])')
version=$($python -c 'import barco; print(barco.__version__)')
architecture=$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

root=build/deb lib=/usr/lib/barco
site=$root$lib/lib/python3.$minor/site-packages
rm -rf "$root" && mkdir -p "$root/DEBIAN" "$site" "$root$lib/bin" "$root/usr/bin"

# --- A virtual environment of the distribution's Python -----------------------------------------
$python -m pip install --quiet --disable-pip-version-check --no-compile \
    --target "$site" "$wheel[certs]"
rm -rf "$site/bin" "$site"/*/tests "$site/share"
find "$site" -name __pycache__ -prune -exec rm -rf {} +
for each in RECORD direct_url.json INSTALLER REQUESTED; do
    find "$site" -name "$each" -delete
done
ln -s /usr/bin/python3 "$root$lib/bin/python3"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.%s\n' "$minor" \
    >"$root$lib/pyvenv.cfg"
# The service may not write there: without these it would compile everything at each start.
$python -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" -p / "$site"
find "$site" -name '*.so*' -exec chmod 644 {} + -exec strip --strip-unneeded {} +
cat >"$root/usr/bin/barco" <<END
#!$lib/bin/python3 -P
import sys

from barco.__main__ import main

sys.exit(main())
END
chmod 755 "$root/usr/bin/barco"

# --- Files of the system ------------------------------------------------------------------------
put() { install -D -m "$1" "$2" "$root$3"; }
for unit in barco.service barco@.service; do
    put 644 "packaging/systemd/$unit" "/usr/lib/systemd/system/$unit"
done
put 644 packaging/systemd/sysusers.conf /usr/lib/sysusers.d/barco.conf
put 644 packaging/systemd/tmpfiles.conf /usr/lib/tmpfiles.d/barco.conf
put 644 packaging/barco.toml /etc/barco/barco.toml
put 644 packaging/debian/default /etc/default/barco
for page in README.md tuning.md docs/operations.md docs/security.md; do
    put 644 "$page" "/usr/share/doc/barco/$(basename "$page")"
done
put 644 packaging/debian/copyright /usr/share/doc/barco/copyright
put 644 packaging/debian/lintian-overrides /usr/share/lintian/overrides/barco
printf 'barco (%s) unstable; urgency=medium\n\n  * See %s\n\n -- %s  %s\n' \
    "$version" /usr/share/doc/barco/README.md \
    "$(sed -n 's/^Maintainer: //p' packaging/debian/control)" \
    "$(date -uR -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$root/usr/share/doc/barco/changelog.gz"

# --- What dpkg reads ----------------------------------------------------------------------------
libc=$(find "$site" -name '*.so*' -exec objdump -T {} + 2>/dev/null |
    grep -o 'GLIBC_[0-9][0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@LIBC@/$libc/; s/@SIZE@/$size/" \
    -e "s/@PYTHON@/3.$minor/; s/@NEXT@/3.$((minor + 1))/" \
    packaging/debian/control >"$root/DEBIAN/control"
printf '/etc/barco/barco.toml\n/etc/default/barco\n' >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) \
    >"$root/DEBIAN/md5sums"
find "$root" -type d -exec chmod 755 {} +
package=dist/barco_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
