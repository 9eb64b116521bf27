# Packages of the kernel for Debian: built, put into an apt repository, brought to the next point release, tried.
# ../Makefile includes this file. README.md of this folder is for those who install them.
#
# FLAVOUR is Debian's name of a configuration: cloud-amd64 is for servers and guests, amd64 for all hardware.
# DEB_CONFIG=FILE is another configuration, FLAVOUR then a name of one's own. KEY names the builder's key to gpg.
FLAVOUR ?= cloud-amd64
DEB_CONFIG ?= $(BUILD)/source/config.amd64_none_$(FLAVOUR).xz
DEB := $(BUILD)/deb/$(FLAVOUR)
DIFFERENT := packaging/debian.config
APT ?= $(BUILD)/apt
KEY ?=
# What `uname -r` says.
RELEASE = $$($(MAKE) -s --no-print-directory -C $(PRISTINE) kernelversion)-prezero-$(FLAVOUR)

setup-deb: ## install the Debian packages that packages of the kernel take (asks for root)
	./setup.sh packaging/packages

deb-packages: # what is missing, by name
	@$(MAKE) -s --no-print-directory packages PACKAGES=packaging/packages INSTALLER=setup-deb

has-key:
	@[ -n "$(KEY)" ] || { echo "KEY= names the key that signs: an address or fingerprint of 'gpg --list-secret-keys'"; exit 2; } >&2
	@gpg --batch --list-secret-keys "$(KEY)" > /dev/null

deb-config: $(PATCHED_TREE) $(DEB_CONFIG) $(DIFFERENT)
	packaging/configure.sh $(PATCHED) $(DEB)/linux $(DEB_CONFIG) $(DIFFERENT)

# MODULES=FILE, as lsmod writes it: no others are built, which makes an hour of it minutes.
# Debug symbols are not packaged (gigabytes; BTF stays), nor are the C library's headers, which Debian has.
# The version has the minute: what is built again, be it from nothing, is newer to apt.
deb: deb-packages deb-config ## installable packages, from Debian's cloud configuration: over an hour (FLAVOUR=amd64: all hardware)
	$(if $(MODULES),{ yes "" || true; } | $(MAKE) -s -C $(PATCHED) O=$(DEB)/linux ARCH=x86_64 LSMOD=$(abspath $(MODULES)) localmodconfig > /dev/null)
	rm -f $(DEB)/*.deb
	DEB_BUILD_PROFILES=pkg.linux-prezero.nokerneldbg $(MAKE) -s -C $(PATCHED) O=$(DEB)/linux ARCH=x86_64 -j$(JOBS) \
	    LOCALVERSION=-prezero-$(FLAVOUR) KDEB_SOURCENAME=linux-prezero KDEB_CHANGELOG_DIST=prezero \
	    KDEB_PKGVERSION=$$($(MAKE) -s --no-print-directory -C $(PRISTINE) kernelversion)-$$(date -u +%Y%m%d.%H%M) bindeb-pkg
	rm -f $(DEB)/linux-libc-dev_*.deb
	@ls $(DEB)/*.deb

apt: has-key deb ## the packages in an apt repository, a folder (APT=), signed with KEY=; URL= is where machines find it
	packaging/apt.sh $(APT) "$(KEY)" $(FLAVOUR) $(DEB)/*.deb

# NEXT=FILE: that source, not the archive's newest.
NEXT ?=
UPGRADE_TESTS ?= test
upgrade: has-key deb-packages fetch ## the newest point release: fetched, series applied, tests, packages, apt repository (KEY=)
	packaging/upgrade.sh $(BUILD) $(VERSION) $(PRISTINE) $(TARBALL) $(SERIES) "$(NEXT)"
	@if grep -qsx "Package: linux-image-$(RELEASE)" $(APT)/dists/prezero/main/binary-amd64/Packages; then \
	    echo "upgrade: $(RELEASE) is in $(APT)"; \
	else $(MAKE) $(UPGRADE_TESTS) && $(MAKE) apt; fi

# ---- tests ---------------------------------------------------------------------------------------

# A kernel that is built in minutes.
SMALL := $(BUILD)/deb/small.config
$(SMALL): packaging/small.config | $(PATCHED_TREE)
	rm -rf $@.d
	mkdir -p $@.d
	$(MAKE) -s -C $(PATCHED) O=$@.d ARCH=x86_64 tinyconfig
	cd $@.d && ARCH=x86_64 $(PATCHED)/scripts/kconfig/merge_config.sh -m .config $(abspath $^) > merge.log
	mv $@.d/.config $@

# Against the same configuration without the series and this folder: what differs is DIFFERENT.
test-deb-config: deb-packages deb-config
	packaging/configure.sh $(PRISTINE) $(DEB)/plain $(DEB_CONFIG)
	packaging/tests/config.sh $(DEB_CONFIG) $(DEB)/plain/.config $(DEB)/linux/.config $(DIFFERENT)

test-apt: deb-packages
	packaging/tests/apt.sh

test-upgrade: $(PRISTINE)/Makefile
	packaging/tests/upgrade.sh $(PRISTINE) $(SERIES)

# PREZERO: the folder of prezero, prezerod and libprezero.so. Without them only the kernel is tried.
PREZERO ?= ../target/release
test-measure: x86 initramfs
	packaging/tests/measure.sh $(BUILD)/x86/$(BZIMAGE) $(BUILD)/gen_init_cpio $(BUILD)/initramfs.gz $(PREZERO)

test-installed: deb-packages $(SMALL)
	packaging/tests/installed.sh $(BUILD) $(PREZERO)

test-deb: test-apt test-upgrade test-deb-config test-measure test-installed ## the packages: configuration, apt repository, upgrade, and a Debian guest that installs and boots them
	$(MAKE) test-deb-config FLAVOUR=amd64

.PHONY: setup-deb deb-packages has-key deb-config deb apt upgrade
.PHONY: test-deb test-deb-config test-apt test-upgrade test-measure test-installed
