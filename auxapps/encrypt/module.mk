encrypt_PKGS := libcrypto
