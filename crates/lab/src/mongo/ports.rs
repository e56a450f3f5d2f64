//! Ports of 127.0.0.1 for servers that tests start.

use std::net::{Ipv4Addr, TcpListener};

use crate::LabError;

/// Below the range from which the system takes ports for clients: there a client that calls a server that was killed may
/// be given the very port it calls, and the server could not come back. Above the ports for counters of Cassandra.
const FIRST: u16 = 28_400;
/// The first port of a block is for nobody: who listens there has the block.
const BLOCK_PORTS: u16 = 16;
const BLOCKS: u16 = 270;

/// The first of some ports that no other process of the lab takes as long as the listener is open, here or in the keeper.
pub(crate) fn take_free(ports: u16) -> Result<(u16, TcpListener), LabError> {
    let blocks = u32::from(BLOCKS);
    // Processes that start together begin at different places.
    let start = std::process::id() % blocks;
    for step in 0..blocks {
        let block = u16::try_from((start + step) % blocks).unwrap_or(0);
        let held = FIRST + block * BLOCK_PORTS;
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, held)) else { continue };
        if check_free(held + 1, ports).is_ok() {
            return Ok((held + 1, listener));
        }
    }
    Err(LabError::NoFreePorts { ports, first: FIRST, last: FIRST + BLOCKS * BLOCK_PORTS })
}

/// Fails if somebody listens where the servers should.
pub(crate) fn check_free(first: u16, ports: u16) -> Result<(), LabError> {
    for port in (first..).take(usize::from(ports)) {
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
            return Err(LabError::PortTaken { port });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_takers_get_different_ports_below_those_of_clients() {
        let (one, _held) = take_free(3).unwrap();
        let (other, _held_too) = take_free(3).unwrap();
        assert!(one.abs_diff(other) >= BLOCK_PORTS);
        const { assert!(FIRST + BLOCKS * BLOCK_PORTS < 32_768) };
    }
}
