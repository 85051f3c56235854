! fpdump in Fortran: arrays of a parallel program into a process-group stream (fpdump.h says what it is; docs/PROTOCOL.md has the format). Compile this file with the
! application and link libfpdump.a:
!
!     use fpdump
!     type(fpdump_stream) :: f
!     rc = fpdump_open(f, 'out.0001.fpd', rank, ranks)
!     rc = fpdump_begin(f, step)
!     rc = fpdump_put(f, '/temperature', FPDUMP_FLOAT64, global, offset, t)     ! integer(int64) :: global(3), offset(3), local(3) = shape(t)
!     rc = fpdump_attr(f, '/temperature', 'units', 'K')
!     rc = fpdump_end(f)
!     rc = fpdump_close(f)
!
! Dimensions are those of Fortran: the first varies fastest. In the result they are reversed, as always where Fortran and C meet; attribute dims names them in the order of the result ('z y x').
! offset is the number of elements before the block, 0 at the beginning. All functions return 0 or a negative errno; the first error stays, and fpdump_close returns it.
module fpdump
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real64
    implicit none
    private

    public :: fpdump_stream, fpdump_open, fpdump_begin, fpdump_put, fpdump_attr, fpdump_end, fpdump_close

    integer(c_int), parameter, public :: FPDUMP_INT8 = int(z'101'), FPDUMP_INT16 = int(z'102')
    integer(c_int), parameter, public :: FPDUMP_INT32 = int(z'104'), FPDUMP_INT64 = int(z'108')
    integer(c_int), parameter, public :: FPDUMP_UINT8 = int(z'201'), FPDUMP_UINT16 = int(z'202')
    integer(c_int), parameter, public :: FPDUMP_UINT32 = int(z'204'), FPDUMP_UINT64 = int(z'208')
    integer(c_int), parameter, public :: FPDUMP_FLOAT32 = int(z'304'), FPDUMP_FLOAT64 = int(z'308')
    integer(c_int), parameter, public :: FPDUMP_COMPLEX64 = int(z'408'), FPDUMP_COMPLEX128 = int(z'410')

    type :: fpdump_stream
        private
        type(c_ptr) :: p = c_null_ptr
    end type

    type, bind(c) :: options
        integer(c_int32_t) :: rank, ranks
        integer(c_size_t) :: buffer_bytes
        integer(c_int) :: no_checksum, sync
    end type

    ! fpdump_attr(stream, variable, name, value): text, or one or several integer(int64) or real(real64). variable '': of the whole.
    interface fpdump_attr
        module procedure attr_text, attr_int, attr_ints, attr_real, attr_reals
    end interface

    interface
        function c_open(path, o, out) bind(c, name='fpdump_open') result(rc)
            import :: c_char, c_int, c_ptr, options
            character(kind=c_char), intent(in) :: path(*)
            type(options), intent(in) :: o
            type(c_ptr), intent(out) :: out
            integer(c_int) :: rc
        end function
        function c_begin(f, step, rank) bind(c, name='fpdump_begin_rank') result(rc)
            import :: c_int, c_int32_t, c_int64_t, c_ptr
            type(c_ptr), value :: f
            integer(c_int64_t), value :: step
            integer(c_int32_t), value :: rank
            integer(c_int) :: rc
        end function
        function c_begin_own(f, step) bind(c, name='fpdump_begin') result(rc)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value :: f
            integer(c_int64_t), value :: step
            integer(c_int) :: rc
        end function
        function c_put(f, name, type_, ndims, global, offset, local, data) bind(c, name='fpdump_put') result(rc)
            import :: c_char, c_int, c_int64_t, c_ptr
            type(c_ptr), value :: f
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), value :: type_, ndims
            integer(c_int64_t), intent(in) :: global(*), offset(*), local(*)
            type(c_ptr), value :: data
            integer(c_int) :: rc
        end function
        function c_attr_text(f, variable, name, text) bind(c, name='fpdump_attr_text') result(rc)
            import :: c_char, c_int, c_ptr
            type(c_ptr), value :: f
            character(kind=c_char), intent(in) :: variable(*), name(*), text(*)
            integer(c_int) :: rc
        end function
        function c_attr_ints(f, variable, name, values, count) bind(c, name='fpdump_attr_ints') result(rc)
            import :: c_char, c_int, c_int64_t, c_ptr, c_size_t
            type(c_ptr), value :: f
            character(kind=c_char), intent(in) :: variable(*), name(*)
            integer(c_int64_t), intent(in) :: values(*)
            integer(c_size_t), value :: count
            integer(c_int) :: rc
        end function
        function c_attr_floats(f, variable, name, values, count) bind(c, name='fpdump_attr_floats') result(rc)
            import :: c_char, c_double, c_int, c_ptr, c_size_t
            type(c_ptr), value :: f
            character(kind=c_char), intent(in) :: variable(*), name(*)
            real(c_double), intent(in) :: values(*)
            integer(c_size_t), value :: count
            integer(c_int) :: rc
        end function
        function c_end(f) bind(c, name='fpdump_end') result(rc)
            import :: c_int, c_ptr
            type(c_ptr), value :: f
            integer(c_int) :: rc
        end function
        function c_close(f) bind(c, name='fpdump_close') result(rc)
            import :: c_int, c_ptr
            type(c_ptr), value :: f
            integer(c_int) :: rc
        end function
    end interface

contains

    function fpdump_open(f, path, rank, ranks, buffer_bytes, checksum, sync) result(rc)
        type(fpdump_stream), intent(out) :: f
        character(*), intent(in) :: path
        integer, intent(in), optional :: rank, ranks
        integer(int64), intent(in), optional :: buffer_bytes
        logical, intent(in), optional :: checksum, sync
        integer(c_int) :: rc
        type(options) :: o

        o = options(0, 0, 0, 0, 0)
        if (present(rank)) o%rank = int(rank, c_int32_t)
        if (present(ranks)) o%ranks = int(ranks, c_int32_t)
        if (present(buffer_bytes)) o%buffer_bytes = int(buffer_bytes, c_size_t)
        if (present(checksum)) o%no_checksum = merge(0, 1, checksum)
        if (present(sync)) o%sync = merge(1, 0, sync)
        rc = c_open(trim(path) // c_null_char, o, f%p)
    end function

    function fpdump_begin(f, step, rank) result(rc)
        type(fpdump_stream), intent(in) :: f
        integer, intent(in) :: step
        integer, intent(in), optional :: rank
        integer(c_int) :: rc

        if (present(rank)) then
            rc = c_begin(f%p, int(step, c_int64_t), int(rank, c_int32_t))
        else
            rc = c_begin_own(f%p, int(step, c_int64_t))
        end if
    end function

    ! The block data of a global array: shape(data) elements from offset on. Sections that are not contiguous are copied by the compiler. A scalar has global and offset of size 0.
    function fpdump_put(f, name, type_, global, offset, data) result(rc)
        type(fpdump_stream), intent(in) :: f
        character(*), intent(in) :: name
        integer(c_int), intent(in) :: type_
        integer(int64), intent(in) :: global(:), offset(:)
        type(*), dimension(..), intent(in), contiguous, target :: data
        integer(c_int) :: rc
        integer(c_int64_t) :: local(7), reversed_global(7), reversed_offset(7)
        integer :: n, i

        n = size(global)
        rc = -22
        if (n /= rank(data) .or. n /= size(offset) .or. n > 7) return
        do i = 1, n
            local(n + 1 - i) = size(data, dim=i, kind=c_int64_t)
            reversed_global(n + 1 - i) = global(i)
            reversed_offset(n + 1 - i) = offset(i)
        end do
        rc = c_put(f%p, trim(name) // c_null_char, type_, int(n, c_int), reversed_global, reversed_offset, &
                   local, c_loc(data))
    end function

    function attr_text(f, variable, name, value) result(rc)
        type(fpdump_stream), intent(in) :: f
        character(*), intent(in) :: variable, name, value
        integer(c_int) :: rc

        rc = c_attr_text(f%p, trim(variable) // c_null_char, trim(name) // c_null_char, trim(value) // c_null_char)
    end function

    function attr_ints(f, variable, name, value) result(rc)
        type(fpdump_stream), intent(in) :: f
        character(*), intent(in) :: variable, name
        integer(int64), intent(in) :: value(:)
        integer(c_int) :: rc

        rc = c_attr_ints(f%p, trim(variable) // c_null_char, trim(name) // c_null_char, value, &
                         size(value, kind=c_size_t))
    end function

    function attr_int(f, variable, name, value) result(rc)
        type(fpdump_stream), intent(in) :: f
        character(*), intent(in) :: variable, name
        integer(int64), intent(in) :: value
        integer(c_int) :: rc

        rc = attr_ints(f, variable, name, [value])
    end function

    function attr_reals(f, variable, name, value) result(rc)
        type(fpdump_stream), intent(in) :: f
        character(*), intent(in) :: variable, name
        real(real64), intent(in) :: value(:)
        integer(c_int) :: rc

        rc = c_attr_floats(f%p, trim(variable) // c_null_char, trim(name) // c_null_char, value, &
                           size(value, kind=c_size_t))
    end function

    function attr_real(f, variable, name, value) result(rc)
        type(fpdump_stream), intent(in) :: f
        character(*), intent(in) :: variable, name
        real(real64), intent(in) :: value
        integer(c_int) :: rc

        rc = attr_reals(f, variable, name, [value])
    end function

    function fpdump_end(f) result(rc)
        type(fpdump_stream), intent(in) :: f
        integer(c_int) :: rc

        rc = c_end(f%p)
    end function

    ! The stream is gone afterwards, whatever comes back.
    function fpdump_close(f) result(rc)
        type(fpdump_stream), intent(inout) :: f
        integer(c_int) :: rc

        rc = c_close(f%p)
        f%p = c_null_ptr
    end function
end module
