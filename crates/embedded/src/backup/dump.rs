//! The format of a backup's file: a header line, records, and a trailer with their count and a checksum of all
//! before it.
//!
//! ```text
//! mobimir dump 1\n
//! { space: u8, key bytes: u32, value bytes: u32, key, value }   repeated; numbers are big-endian
//! { 0xFF, records: u64, SHA-256 of everything up to and including the count: 32 bytes }
//! ```

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::Progress;
use crate::engine::{KEY_BYTES_MAX, Space};

const HEADER: &[u8] = b"mobimir dump 1\n";
const TRAILER: u8 = u8::MAX;
/// Far more than any record has; a length beyond it is damage, not data.
const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Error)]
pub enum DumpError {
    #[error("it cannot be read")]
    Io(#[source] io::Error),
    #[error("it does not start with {:?}: it is no backup, or one of another version", String::from_utf8_lossy(HEADER).trim_end())]
    OtherFormat,
    #[error("it is cut off after {records} records")]
    Truncated { records: u64 },
    #[error("it is damaged after {records} records: {what}")]
    Damaged { records: u64, what: &'static str },
}

pub(super) struct DumpWriter<W> {
    output: W,
    checksum: Sha256,
    progress: Progress,
}

impl<W: Write> DumpWriter<W> {
    pub(super) fn start(output: W) -> io::Result<Self> {
        let mut writer = Self { output, checksum: Sha256::new(), progress: Progress::default() };
        writer.write(HEADER)?;
        Ok(writer)
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    pub(super) fn record(&mut self, space: Space, key: &[u8], value: &[u8]) -> io::Result<()> {
        let length = |part: &[u8]| u32::try_from(part.len()).map_err(io::Error::other);
        self.write(&[space.number()])?;
        self.write(&length(key)?.to_be_bytes())?;
        self.write(&length(value)?.to_be_bytes())?;
        self.write(key)?;
        self.write(value)?;
        self.progress.records += 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<(W, Progress)> {
        self.write(&[TRAILER])?;
        self.write(&self.progress.records.to_be_bytes())?;
        let checksum = self.checksum.clone().finalize();
        self.write(&checksum)?;
        self.output.flush()?;
        Ok((self.output, self.progress))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        self.progress.bytes += bytes.len() as u64;
        self.output.write_all(bytes)
    }
}

pub(super) struct DumpReader<R> {
    input: R,
    checksum: Sha256,
    progress: Progress,
}

pub(super) type Record = (Space, Vec<u8>, Vec<u8>);

impl<R: Read> DumpReader<R> {
    pub(super) fn start(input: R) -> Result<Self, DumpError> {
        let mut reader = Self { input, checksum: Sha256::new(), progress: Progress::default() };
        let header = reader.take(HEADER.len());
        match header {
            Ok(header) if header == HEADER => Ok(reader),
            Ok(_) | Err(DumpError::Truncated { .. }) => Err(DumpError::OtherFormat),
            Err(error) => Err(error),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// The next record. `None` means that all of them were read and are what was written.
    pub(super) fn next(&mut self) -> Result<Option<Record>, DumpError> {
        let kind = self.take_array::<1>()?[0];
        if kind == TRAILER {
            self.check_trailer()?;
            return Ok(None);
        }
        let space = Space::from_number(kind).ok_or_else(|| self.damaged("unknown keyspace"))?;
        let key_bytes = u32::from_be_bytes(self.take_array()?) as usize;
        let value_bytes = u32::from_be_bytes(self.take_array()?) as usize;
        if key_bytes == 0 || key_bytes > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
            return Err(self.damaged("impossible length"));
        }
        let (key, value) = (self.take(key_bytes)?, self.take(value_bytes)?);
        self.progress.records += 1;
        Ok(Some((space, key, value)))
    }

    fn check_trailer(&mut self) -> Result<(), DumpError> {
        let records = u64::from_be_bytes(self.take_array()?);
        let expected: [u8; 32] = self.checksum.clone().finalize().into();
        if self.take_array::<32>()? != expected {
            return Err(self.damaged("wrong checksum"));
        }
        if records != self.progress.records {
            return Err(self.damaged("wrong number of records"));
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("something follows the end")),
            Err(error) => Err(DumpError::Io(error)),
        }
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DumpError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, DumpError> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), DumpError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => DumpError::Truncated { records: self.progress.records },
            _ => DumpError::Io(error),
        })?;
        self.checksum.update(&*bytes);
        self.progress.bytes += bytes.len() as u64;
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> DumpError {
        DumpError::Damaged { records: self.progress.records, what }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    type Written = (u8, Vec<u8>, Vec<u8>);

    fn written(records: &[Written]) -> Vec<u8> {
        let mut dump = DumpWriter::start(Vec::new()).unwrap();
        for (space, key, value) in records {
            dump.record(Space::from_number(*space).unwrap(), key, value).unwrap();
        }
        let (bytes, progress) = dump.finish().unwrap();
        assert_eq!((progress.records, progress.bytes), (records.len() as u64, bytes.len() as u64));
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Written>, DumpError> {
        let mut dump = DumpReader::start(bytes)?;
        let mut records = Vec::new();
        while let Some((space, key, value)) = dump.next()? {
            records.push((space.number(), key, value));
        }
        Ok(records)
    }

    fn records() -> impl Strategy<Value = Vec<Written>> {
        vec((0..6u8, vec(any::<u8>(), 1..8), vec(any::<u8>(), 0..20)), 0..8)
    }

    proptest! {
        #[test]
        fn records_come_back(records in records()) {
            prop_assert_eq!(read(&written(&records)).unwrap(), records);
        }

        #[test]
        fn a_flipped_bit_is_noticed(records in records(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut bytes = written(&records);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(read(&bytes).is_err());
        }

        #[test]
        fn a_missing_end_is_noticed(records in records(), at in any::<prop::sample::Index>()) {
            let bytes = written(&records);
            prop_assert!(read(&bytes[..at.index(bytes.len())]).is_err());
        }

        #[test]
        fn something_after_the_end_is_noticed(records in records()) {
            let mut bytes = written(&records);
            bytes.push(0);
            prop_assert!(read(&bytes).is_err());
        }
    }
}
