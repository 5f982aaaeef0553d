from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.public_address import is_public, why_refused


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.215.14", "168.63.129.17", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_hosts_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)
    assert not why_refused(address, 443)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("224.0.0.1", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.0.170"),
        *("168.63.129.16", "::ffff:168.63.129.16", "192.0.0.9", "192.0.0.192"),
        *("::1", "::", "fe80::1", "fec0::1", "fd00:ec2::254", "ff0e::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
        *("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:1::1", "fe80::1%eth0", "no address", ""),
    ],
)
def test_all_others_are_not(address: str) -> None:
    assert not is_public(address)
    assert why_refused(address, 80)


@given(st.ip_addresses(v=4))
def test_an_address_inside_of_another_gains_nothing(address: IPv4Address) -> None:
    mapped = IPv6Address(f"::ffff:{address}")
    translated = IPv6Address(int(IPv6Address("64:ff9b::")) | int(address))
    tunnelled = IPv6Address((0x2002 << 112) | (int(address) << 80))
    assert is_public(str(mapped)) == is_public(str(address))
    assert not is_public(str(translated))
    assert not is_public(str(tunnelled))


@pytest.mark.parametrize("port", [0, 22, 25, 6379, 8080])
def test_other_ports_than_the_webs_are_refused(port: int) -> None:
    assert str(port) in why_refused("8.8.8.8", port)
