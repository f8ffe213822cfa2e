"""The IP addresses of this host's network interfaces (Linux)."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Collection

LOOPBACK = "lo"  # Linux gives its loopback interface no other name

# <linux/sockios.h> and <linux/if.h>
_SIOCGIFFLAGS, _SIOCGIFADDR = 0x8913, 0x8915
_IFF_UP = 1
_REQUEST = struct.Struct("16s24x")  # struct ifreq; the answer is behind the name
_NOT_USABLE = 0x48  # IPv6: another host has the address, or the kernel still asks


def addresses_by_interface(names: Collection[str] | None = None) -> dict[str, list[str]]:
    """{interface: [IP address]} of the interfaces that are up.

    names: only these.  None: all but the loopback interface; that one too if there is no other.
    Errors: ValueError for a name without an address.
    """
    found: dict[str, list[str]] = {}
    for _, interface in socket.if_nameindex():
        addresses = _ipv4(interface) + _ipv6(interface)
        if addresses:
            found[interface] = addresses
    if names is None:
        return {name: found[name] for name in found if name != LOOPBACK} or found
    for name in names:
        if name not in found:
            raise ValueError(f"no network interface {name} with an address is up; there are {', '.join(found) or 'none'}")
    return {name: found[name] for name in names}


def _ipv4(interface: str) -> list[str]:
    """The first IPv4 address, if the interface is up."""
    request = _REQUEST.pack(interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            flags = struct.unpack_from("H", fcntl.ioctl(probe, _SIOCGIFFLAGS, request), 16)[0]
            address = fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24]
        except OSError:  # the interface has gone, or has no such address
            return []
    return [socket.inet_ntoa(address)] if flags & _IFF_UP else []


def _ipv6(interface: str) -> list[str]:
    """The IPv6 addresses, without those of the link: they need the name of an interface on each host."""
    try:
        with open("/proc/net/if_inet6") as table:
            rows = [line.split() for line in table]
    except OSError:  # the kernel has no IPv6
        return []
    found = []
    for digits, _, _, _, flags, name in rows:
        address = ipaddress.IPv6Address(int(digits, 16))
        if name == interface and not address.is_link_local and not int(flags, 16) & _NOT_USABLE:
            found.append(str(address))
    return found
