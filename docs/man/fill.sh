#!/bin/sh
# Makes a man page from its source: fill.sh <folder of the programs> <version> <page.in>, to stdout.
#     @options PROGRAM@   a line: the options of the program, as it prints them
#     @conf PROGRAM@      a line: its keys in fp.conf
#     @commands PROGRAM@  a line: its commands
#     @version@           anywhere
set -eu
bin=$1 version=$2 page=$3

while IFS= read -r line; do
    case $line in
    '@options '*@) what=--print-man-options ;;
    '@conf '*@) what=--print-man-conf ;;
    '@commands '*@) what=--print-man-commands ;;
    *) printf '%s\n' "$line" && continue ;;
    esac
    program=${line#@* }
    "$bin/${program%@}" $what
done <"$page" | sed "s/@version@/$version/g"
