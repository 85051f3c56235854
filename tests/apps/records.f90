! records write|read FILE RANK RANKS SEED: Fortran's three ways to write unformatted, as checkpoints of Fortran programs are.
! One process per rank, without MPI: sequential unformatted records (with the compiler's record marks) and stream access go to a
! file of each rank, direct access to one file that all ranks share, in records of 47001 bytes. Compiled by the test that runs it.
program records
  use iso_fortran_env, only: int8, int32, error_unit
  implicit none
  integer, parameter :: n = 5000, record = 47001, count = 12
  character(len=1024) :: what, file, text
  integer :: rank, ranks, seed, i, u
  integer(int32) :: header(4)
  real(8) :: field(n)
  integer(int8) :: bytes(record)

  call get_command_argument(1, what)
  call get_command_argument(2, file)
  call get_command_argument(3, text); read (text, *) rank
  call get_command_argument(4, text); read (text, *) ranks
  call get_command_argument(5, text); read (text, *) seed
  if (what == 'write') then
     open (newunit=u, file=own('seq'), form='unformatted', access='sequential', status='replace')
     do i = 1, count
        write (u) [rank, i, n, seed]
        write (u) values(rank, i)
     end do
     close (u)
     open (newunit=u, file=own('stream'), form='unformatted', access='stream', status='replace')
     do i = 1, count
        write (u) values(rank, i), i
     end do
     close (u)
     open (newunit=u, file=trim(file)//'.direct', form='unformatted', access='direct', recl=record, status='unknown')
     do i = 1, count
        write (u, rec=(i - 1) * ranks + rank + 1) direct(rank, i)
     end do
     close (u)
  else
     open (newunit=u, file=own('seq'), form='unformatted', access='sequential', status='old', action='read')
     do i = 1, count
        read (u) header
        if (any(header /= [rank, i, n, seed])) call wrong('header of a record', i)
        read (u) field
        if (any(field /= values(rank, i))) call wrong('record', i)
     end do
     backspace (u)
     read (u) field
     if (any(field /= values(rank, count))) call wrong('record after backspace', count)
     close (u)
     open (newunit=u, file=own('stream'), form='unformatted', access='stream', status='old', action='read')
     do i = 1, count
        read (u) field, header(1)
        if (any(field /= values(rank, i)) .or. header(1) /= i) call wrong('stream', i)
     end do
     close (u)
     open (newunit=u, file=trim(file)//'.direct', form='unformatted', access='direct', recl=record, status='old', action='read')
     do i = 1, count
        read (u, rec=(i - 1) * ranks + rank + 1) bytes
        if (any(bytes /= direct(rank, i))) call wrong('direct record', i)
     end do
     close (u)
  end if
  print '(a,a,a,i0)', 'records: ', trim(what), ' all right, of rank ', rank

contains

  function own(kind) result(name)
    character(len=*), intent(in) :: kind
    character(len=1100) :: name
    write (name, '(a,a,a,a,i0)') trim(file), '.', kind, '.', rank
  end function own

  function values(r, i) result(v)
    integer, intent(in) :: r, i
    real(8) :: v(n)
    integer :: k
    v = [(sin(real(k, 8)) * i + r * 1000 + seed, k = 1, n)]
  end function values

  function direct(r, i) result(v)
    integer, intent(in) :: r, i
    integer(int8) :: v(record)
    integer :: k
    v = [(int(mod(k * 31 + r * 17 + i * 7 + seed, 127), int8), k = 1, record)]
  end function direct

  subroutine wrong(what, i)
    character(len=*), intent(in) :: what
    integer, intent(in) :: i
    write (error_unit, '(a,a,a,i0,a,i0)') 'records: WRONG DATA in ', what, ' ', i, ' of rank ', rank
    error stop 1
  end subroutine wrong
end program records
