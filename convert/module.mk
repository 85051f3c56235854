# fp-convert: dumps become HDF5 or netCDF files, and back. auxapps/convert starts it; so do fpctl and people.
LIBS += convert
convert_DIRS := convert convert/schema convert/source convert/engine convert/sink convert/watch

PROGS += fp-convert
fp-convert_MAIN := convert/main.c
fp-convert_LIBS := convert common
# The parallel builds of HDF5 and netCDF: one program serves alone and under mpirun.
PKGS_convert    := hdf5-openmpi netcdf-mpi pnetcdf ompi-c yaml-0.1 libzstd zlib
fp-convert_PKGS := $(PKGS_convert)
PKGS_tests      += $(PKGS_convert)
# Debian has the parallel netcdf.h below its prefix, which its --cflags leave out. Calls of HDF5 mean those of 1.10, also where a newer one is (Debian 13).
CONVERT_CFLAGS  := -DH5_USE_110_API $(shell $(PKG_CONFIG) --cflags $(PKGS_convert) 2>/dev/null) -I$(shell $(PKG_CONFIG) --variable=prefix netcdf-mpi 2>/dev/null)/include
$(O)/obj/convert/%.o $(O)/obj/tests/unit/test_cv_%.o: PKG_CFLAGS += $(CONVERT_CFLAGS)
