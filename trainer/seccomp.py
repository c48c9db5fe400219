"""The system-call filter of a sandboxed program: one process, no new one, few ways into the kernel.

A deny-list, not an allow-list: it takes away what a program that reads, computes and writes has no
use for. Refused with EPERM are new processes (threads are allowed), executing files, looking into
other processes or changing their limits and priorities, namespaces, mounts, parts of the kernel
with a history of holes (bpf, io_uring, userfaultfd, perf events, keyrings), and memory that no
limit counts (memfd, System V, queues). A call by another architecture's numbers ends the process.
"""

from __future__ import annotations

import errno
import os
import struct

from trainer.errors import SandboxError

__all__ = ["filter_code"]

# calls that all architectures number alike
ALIKE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "memfd_secret": 447,
    "process_mrelease": 448,
}
X86_64 = {
    "shmget": 29,
    "fork": 57,
    "vfork": 58,
    "execve": 59,
    "semget": 64,
    "msgget": 68,
    "ptrace": 101,
    "setpriority": 141,
    "sched_setparam": 142,
    "sched_setscheduler": 144,
    "pivot_root": 155,
    "chroot": 161,
    "mount": 165,
    "umount2": 166,
    "sched_setaffinity": 203,
    "mq_open": 240,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "ioprio_set": 251,
    "migrate_pages": 256,
    "unshare": 272,
    "move_pages": 279,
    "perf_event_open": 298,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "sched_setattr": 314,
    "memfd_create": 319,
    "bpf": 321,
    "execveat": 322,
    "userfaultfd": 323,
}
AARCH64 = {
    "ioprio_set": 30,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "unshare": 97,
    "ptrace": 117,
    "sched_setparam": 118,
    "sched_setscheduler": 119,
    "sched_setaffinity": 122,
    "setpriority": 140,
    "mq_open": 180,
    "msgget": 186,
    "semget": 190,
    "shmget": 194,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "execve": 221,
    "migrate_pages": 238,
    "move_pages": 239,
    "perf_event_open": 241,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "sched_setattr": 274,
    "memfd_create": 279,
    "bpf": 280,
    "execveat": 281,
    "userfaultfd": 282,
}
# machine: AUDIT_ARCH of linux/audit.h, numbers of clone and prlimit64, the refused calls
MACHINES = {"x86_64": (0xC000003E, 56, 302, X86_64), "aarch64": (0xC00000B7, 220, 261, AARCH64)}
CLONE3 = 435
CLONE_THREAD = 0x10000
X32 = 0x40000000  # numbers of x86_64's second calling convention begin here

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, ABSENT = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def filter_code(machine: str = "") -> bytes:
    """The filter as classic BPF, eight bytes an instruction.

    Parameters
    ----------
    machine : str
        As ``os.uname().machine`` says; empty: this one.

    Raises
    ------
    SandboxError
        When the numbers of this machine's system calls are not known.
    """
    machine = machine or os.uname().machine
    if machine not in MACHINES:
        raise SandboxError(
            f"no system-call filter for {machine}: model-written code runs on "
            f"{' and '.join(MACHINES)} only"
        )
    architecture, clone, prlimit, refused = MACHINES[machine]
    code = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, KILL),
        (EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, ABSENT),  # the C library then uses clone, whose flags can be seen
    ]
    for number in sorted({**ALIKE, **refused}.values()):
        code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    code += _if_first_argument(prlimit, EQUAL, 0)  # its own limits
    code += _if_first_argument(clone, ANY_BIT, CLONE_THREAD)
    code += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _if_first_argument(number: int, test: int, value: int) -> list[tuple[int, int, int, int]]:
    """Allow a call whose first argument passes the test, refuse it otherwise."""
    return [
        (EQUAL, 0, 4, number),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (test, 0, 1, value),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    ]
