// What the headers of Python's stable ABI need to know about 64-bit Windows and macOS, in place of the pyconfig.h of the
// machine that cross-builds. Written from those headers: no Windows or macOS Python was at hand.
#pragma once

#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_FPOS_T 8
#define SIZEOF__BOOL 1
#define ALIGNOF_MAX_ALIGN_T 16
#define ALIGNOF_SIZE_T 8

#if defined(_WIN32)
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define HAVE_DECLSPEC_DLL  // Python's functions and data come from python3.dll
#define Py_ENABLE_SHARED
#define SIZEOF_LONG 4
#define ALIGNOF_LONG 4
#define SIZEOF_WCHAR_T 2
#define SIZEOF_OFF_T 4
#define SIZEOF_PID_T 4
#else
#define HAVE_SSIZE_T 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_UNISTD_H 1
#define HAVE_PTHREAD_H 1
#define SIZEOF_LONG 8
#define ALIGNOF_LONG 8
#define SIZEOF_WCHAR_T 4
#define SIZEOF_OFF_T 8
#define SIZEOF_PID_T 4
#define SIZEOF_PTHREAD_T 8
#endif

#define HAVE_STDDEF_H 1
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_WCHAR_H 1
#define STDC_HEADERS 1
#define WITH_THREAD 1
