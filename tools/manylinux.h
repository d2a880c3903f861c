/* Included before every source of a library for all Linuxes (tools/manylinux.py): the versions of exp and log that
   glibc has had from its beginning. The same code computes them; those of 2.29 leave out a look at errno. */
#if defined(__x86_64__) && defined(__linux__)
__asm__(".symver exp,exp@GLIBC_2.2.5");
__asm__(".symver log,log@GLIBC_2.2.5");
#endif
