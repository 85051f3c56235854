#!/bin/bash
# Runs an MPI program on this machine alone, as tests and quickstart need it:
#     mpi.sh RANKS PROGRAM [ARG...]
# as root too, with more ranks than cores (they yield when they wait), over
# shared memory only, without touching a network. It becomes mpirun: its process
# id is mpirun's, the ranks are the children of that.
set -eu
ranks=$1
shift
# From the environment, because names a version doesn't know are no error there.
export OMPI_MCA_pml=ob1 OMPI_MCA_mpi_yield_when_idle=1
# Reading each other's memory directly needs ptrace rights that containers lack.
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc='^cma,knem,xpmem'
# Where it has its files: tests that run beside each other say so.
[ -z "${TEST_MPI_TMP:-}" ] || export OMPI_MCA_orte_tmpdir_base=$TEST_MPI_TMP PRTE_MCA_prte_tmpdir_base=$TEST_MPI_TMP
case $(mpirun --version | head -n 1) in
*' 4.'* | *' 3.'*)
    export OMPI_MCA_btl=self,vader
    more=(--oversubscribe)
    ;;
*)
    export OMPI_MCA_btl=self,sm
    more=(--map-by :OVERSUBSCRIBE)
    ;;
esac
exec mpirun -n "$ranks" "${more[@]}" --allow-run-as-root --bind-to none "$@"
