examples_PKGS := libcrypto
