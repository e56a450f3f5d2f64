//! Loopback subnets: each ring has one, so that rings can run side by side with the same ports.

use std::{
    fmt,
    net::{Ipv4Addr, TcpListener},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{LabError, spec::NODES_MAX};

pub(crate) const CQL_PORT: u16 = 9042;
pub(crate) const INTERNODE_PORT: u16 = 7000;

/// Counters are read over ports of 127.0.0.1 only, so every node of every subnet has one of its own: below the range
/// from which the system takes ports for clients.
const JMX_PORT_FIRST: u16 = 12_000;

/// No node: who listens here has the subnet.
const HELD_NODE: u16 = 254;

/// The subnets that tests choose from.
const TEST_NETS: std::ops::RangeInclusive<u8> = 10..=250;

/// The first three numbers of a loopback address, as in `127.0.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Net {
    second: u8,
    third: u8,
}

impl Net {
    pub const DEFAULT: Net = Net { second: 0, third: 0 };

    pub(crate) fn address(self, node: u16) -> Ipv4Addr {
        Ipv4Addr::new(127, self.second, self.third, u8::try_from(node).unwrap_or(u8::MAX))
    }

    /// Fails if somebody listens where the nodes should.
    pub(crate) fn check_free(self, nodes: u16) -> Result<(), LabError> {
        for node in 1..=nodes {
            check_address_free(self.address(node))?;
        }
        Ok(())
    }

    /// A port that nobody listens on.
    pub(crate) fn jmx_port(self, node: u16) -> std::io::Result<u16> {
        let port = JMX_PORT_FIRST + u16::from(self.third) * (NODES_MAX * 2) + node % (NODES_MAX * 2);
        if self.second == 0 && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
        Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
    }
}

pub(crate) fn check_address_free(address: Ipv4Addr) -> Result<(), LabError> {
    for port in [CQL_PORT, INTERNODE_PORT] {
        if TcpListener::bind((address, port)).is_err() {
            return Err(LabError::AddressTaken { address: format!("{address}:{port}") });
        }
    }
    Ok(())
}

/// A subnet that no other process takes as long as the listener is open, here or in the keeper.
pub(crate) fn take_free_net(nodes: u16) -> Result<(Net, TcpListener), LabError> {
    let count = u32::from(TEST_NETS.end() - TEST_NETS.start()) + 1;
    // Processes that start together begin at different places.
    let first = std::process::id() % count;
    for step in 0..count {
        let third = TEST_NETS.start() + u8::try_from((first + step) % count).unwrap_or(0);
        let net = Net { second: 0, third };
        let Ok(held) = TcpListener::bind((net.address(HELD_NODE), CQL_PORT)) else { continue };
        if net.check_free(nodes).is_ok() {
            return Ok((net, held));
        }
    }
    let net = |third: &u8| Net { second: 0, third: *third };
    Err(LabError::NoFreeNet { first: net(TEST_NETS.start()), last: net(TEST_NETS.end()) })
}

impl FromStr for Net {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let bad = || LabError::BadNet(text.to_owned());
        let mut numbers = text.split('.').map(str::parse::<u8>);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(127)), Some(Ok(second)), Some(Ok(third)), None) => Ok(Net { second, third }),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "127.{}.{}", self.second, self.third)
    }
}

impl From<Net> for String {
    fn from(net: Net) -> String {
        net.to_string()
    }
}

impl TryFrom<String> for Net {
    type Error = LabError;

    fn try_from(text: String) -> Result<Self, LabError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_three_numbers_of_loopback() {
        assert_eq!("127.0.17".parse::<Net>().unwrap().address(3), Ipv4Addr::new(127, 0, 17, 3));
        assert_eq!("127.3.0".parse::<Net>().unwrap().to_string(), "127.3.0");
        for bad in ["10.0.0", "127.0", "127.0.0.1", "127.0.256", "", "127.0.x"] {
            assert!(bad.parse::<Net>().is_err(), "{bad}");
        }
    }

    #[test]
    fn two_takers_get_two_subnets() {
        let (one, _held) = take_free_net(1).unwrap();
        let (other, _held_too) = take_free_net(1).unwrap();
        assert_ne!(one, other);
    }

    #[test]
    fn ports_for_counters_stay_below_those_of_clients() {
        let last = JMX_PORT_FIRST + 255 * NODES_MAX * 2 + NODES_MAX * 2;
        assert!(last < 32_768, "{last}");
    }
}
