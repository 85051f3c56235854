checksum_PKGS := libcrypto libxxhash
