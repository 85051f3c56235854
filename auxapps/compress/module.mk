compress_PKGS := libzstd liblz4
