#!/bin/sh
# Makes a container image of Debian's smallest set of packages, without a registry: make_base.sh NAME
# Needs root, debootstrap and buildah; MIRROR is another address of Debian's archive.
set -eu
name=${1:?the name of the image}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase bookworm "$folder/root" "${MIRROR:-http://deb.debian.org/debian}"
rm -rf "$folder"/root/var/cache/apt/archives/*.deb "$folder"/root/var/lib/apt/lists/*
container=$(buildah from scratch)
buildah add --quiet "$container" "$folder/root" /
buildah commit --quiet --rm "$container" "$name"
