//! Reads the file, packed or not, line by line. A bad line is named and passed over, whatever bytes it is made of;
//! only a file that cannot be read at all, or that is no such file, is an error.
//!
//! Every line is parsed on its own, so an opened quote that is never closed spoils one line and not the rest of the
//! file, and no line takes more memory than [`LINE_BYTES_MAX`].

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use mobimir_core::time::Timestamp;

use super::line::{BadLine, Fields, Line, Reason};

pub(crate) const COLUMNS: [&str; 8] = [
    "InvoiceNo",
    "StockCode",
    "Description",
    "Quantity",
    "InvoiceDate",
    "UnitPrice",
    "CustomerID",
    "Country",
];
pub(crate) const LINE_BYTES_MAX: u64 = 64 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How many bytes of the file, as it lies on disk, have been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct BytesRead(Arc<AtomicU64>);

impl BytesRead {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Counted<R> {
    inner: R,
    bytes: BytesRead,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// The lines of a file, from its beginning. Adds to `bytes` what it reads.
pub(crate) fn lines<'a, R: Read + Seek + Send>(
    file: &'a mut R,
    bytes: &BytesRead,
    now: Timestamp,
) -> Result<Lines<Box<dyn BufRead + Send + 'a>>> {
    file.rewind()?;
    let mut magic = Vec::new();
    file.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic)?;
    file.rewind()?;
    let counted = BufReader::new(Counted { inner: file, bytes: bytes.clone() });
    let unpacked: Box<dyn BufRead + Send + 'a> = if magic == GZIP_MAGIC {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(counted)))
    } else {
        Box::new(counted)
    };
    Lines::new(unpacked, now)
}

/// An iterator over the lines after the header.
pub(crate) struct Lines<R> {
    input: R,
    splitter: Splitter,
    /// Where each of [`COLUMNS`] stands.
    places: [usize; 8],
    columns: usize,
    number: u64,
    recoded: u64,
    now: Timestamp,
}

impl<R: BufRead> Lines<R> {
    fn new(mut input: R, now: Timestamp) -> Result<Self> {
        let mut splitter = Splitter::new();
        if splitter.next_line(&mut input).context("the header cannot be read")? != Next::Line
            || splitter.split().is_err()
        {
            bail!("expected a header with the columns {}", COLUMNS.join(", "));
        }
        let header: Vec<String> = splitter
            .record
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim_matches(['\u{feff}', ' ']).to_ascii_lowercase())
            .collect();
        let mut places = [0; 8];
        for (place, column) in places.iter_mut().zip(COLUMNS) {
            let wanted = column.to_ascii_lowercase();
            *place = header.iter().position(|name| *name == wanted).with_context(|| {
                format!("expected a header with the columns {}; there is no {column}", COLUMNS.join(", "))
            })?;
        }
        Ok(Self { input, splitter, places, columns: header.len(), number: 1, recoded: 0, now })
    }

    /// Fields that were no UTF-8 and were taken for Latin-1.
    pub(crate) fn recoded(&self) -> u64 {
        self.recoded
    }

    fn parse(&mut self) -> Result<Line, BadLine> {
        let number = self.number;
        let bad = |reason: Reason, value: String| BadLine { line: number, reason, value };
        match self.splitter.split() {
            Ok(()) if self.splitter.record.len() == self.columns => {}
            Ok(()) => return Err(bad(Reason::WrongColumns, self.splitter.record.len().to_string())),
            Err(MoreThanOneRecord) => return Err(bad(Reason::WrongColumns, "more than one record".into())),
        }
        let texts = self.places.map(|place| decode(self.splitter.record.get(place).unwrap_or_default()));
        self.recoded += texts.iter().filter(|text| matches!(text, Cow::Owned(_))).count() as u64;
        let fields: Fields<'_> = texts.each_ref().map(|text| text.as_ref());
        Line::read(fields, self.now).map_err(|(reason, value)| bad(reason, value))
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<Result<Line, BadLine>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.number += 1;
            let line = match self.splitter.next_line(&mut self.input) {
                Ok(Next::End) => return None,
                Ok(Next::Blank) => continue,
                Ok(Next::TooLong) => {
                    let value = format!("more than {LINE_BYTES_MAX} bytes");
                    Err(BadLine { line: self.number, reason: Reason::LineTooLong, value })
                }
                Ok(Next::Line) => self.parse(),
                Err(error) => return Some(Err(error)),
            };
            return Some(Ok(line));
        }
    }
}

/// UTF-8, or else Latin-1, in which every byte is a character.
fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().copied().map(char::from).collect()),
    }
}

/// Cuts the input into lines and a line into fields. One CSV reader is set to each line anew.
struct Splitter {
    reader: csv::Reader<Cursor<Vec<u8>>>,
    record: csv::ByteRecord,
}

#[derive(PartialEq, Eq)]
enum Next {
    Line,
    Blank,
    TooLong,
    End,
}

struct MoreThanOneRecord;

impl Splitter {
    fn new() -> Self {
        let reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(Cursor::new(Vec::new()));
        Self { reader, record: csv::ByteRecord::new() }
    }

    fn next_line(&mut self, input: &mut impl BufRead) -> io::Result<Next> {
        let line = self.reader.get_mut().get_mut();
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)? as u64;
        if read == 0 {
            return Ok(Next::End);
        }
        if line.last() != Some(&b'\n') && read == LINE_BYTES_MAX {
            input.skip_until(b'\n')?;
            return Ok(Next::TooLong);
        }
        Ok(if line.trim_ascii().is_empty() { Next::Blank } else { Next::Line })
    }

    /// Splits the line read last. A lone carriage return would start a second record, which must not get lost.
    fn split(&mut self) -> Result<(), MoreThanOneRecord> {
        let mut read = || {
            self.reader.seek_raw(SeekFrom::Start(0), csv::Position::new())?;
            self.reader.read_byte_record(&mut self.record)?;
            let mut rest = csv::ByteRecord::new();
            self.reader.read_byte_record(&mut rest)
        };
        // A reader in memory that takes records of any length has nothing to fail with.
        match read() {
            Ok(false) => Ok(()),
            Ok(true) | Err::<_, csv::Error>(_) => Err(MoreThanOneRecord),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    const HEADER: &str =
        "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n";

    fn now() -> Timestamp {
        Timestamp::parse("2025-01-01T00:00:00Z").unwrap()
    }

    fn read(bytes: Vec<u8>) -> Result<Vec<Result<Line, BadLine>>> {
        let mut file = Cursor::new(bytes);
        let lines = lines(&mut file, &BytesRead::default(), now())?;
        Ok(lines.collect::<io::Result<_>>()?)
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn packed_and_plain_files_read_alike() {
        let text =
            format!("\u{feff}{HEADER}1,A1,\"MUG, \"\"BLUE\"\"\",6,2010-12-01 08:26:00,2.55,,EIRE\r\n\r\n");
        let plain = read(text.clone().into_bytes()).unwrap();
        assert_eq!(plain.len(), 1);
        assert_eq!(plain[0].as_ref().unwrap().description, "MUG, \"BLUE\"");
        assert_eq!(read(packed(text.as_bytes())).unwrap(), plain);
        let (head, tail) = text.as_bytes().split_at(100);
        assert_eq!(read([packed(head), packed(tail)].concat()).unwrap(), plain);
    }

    #[test]
    fn columns_may_stand_in_any_order_but_must_all_be_there() {
        let text = "Country,CustomerID,UnitPrice,InvoiceDate,Quantity,Description,StockCode,InvoiceNo,Note\n\
            EIRE,1,2,2010-12-01 08:26:00,3,MUG,A1,77,x\n";
        let line = read(text.into()).unwrap().remove(0).unwrap();
        assert_eq!((line.invoice.as_str(), line.country.as_str(), line.quantity), ("77", "EIRE", 3));
        for no_header in ["", "\n", "a,b\n", "InvoiceNo,StockCode,Description,Quantity\n"] {
            let error = read(no_header.into()).unwrap_err().to_string();
            assert!(error.contains("expected a header"), "{error}");
        }
    }

    #[test]
    fn a_bad_line_spoils_only_itself() {
        let good = "1,A1,MUG,6,2010-12-01 08:26:00,2.55,,EIRE";
        let long = "x".repeat(LINE_BYTES_MAX as usize);
        let text =
            format!("{HEADER}{good}\n1,A1,\"MUG\n{good}\n1,2,3\n{good}\n{long}\n{good}\r{good}\n{good}");
        let lines = read(text.into_bytes()).unwrap();
        let bad: Vec<_> =
            lines.iter().filter_map(|line| line.as_ref().err()).map(|b| (b.line, b.reason)).collect();
        assert_eq!(
            bad,
            [
                (3, Reason::WrongColumns),
                (5, Reason::WrongColumns),
                (7, Reason::LineTooLong),
                (8, Reason::WrongColumns)
            ]
        );
        assert_eq!(lines.len() - bad.len(), 4);
    }

    #[test]
    fn bytes_that_are_no_utf_8_are_latin_1() {
        let mut bytes = HEADER.as_bytes().to_vec();
        bytes.extend(b"1,A1,VOUCHER \xa320,6,2010-12-01 08:26:00,2.55,,EIRE\n");
        let mut file = Cursor::new(bytes);
        let mut lines = lines(&mut file, &BytesRead::default(), now()).unwrap();
        assert_eq!(lines.next().unwrap().unwrap().unwrap().description, "VOUCHER £20");
        assert_eq!(lines.recoded(), 1);
    }

    #[test]
    fn a_packed_file_that_breaks_off_is_an_error() {
        let mut bytes =
            packed(format!("{HEADER}{}", "1,A1,MUG,6,2010-12-01 08:26:00,2,,UK\n".repeat(99)).as_bytes());
        bytes.truncate(bytes.len() - 12);
        assert!(read(bytes).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(bytes.clone());
            let _ = read([&GZIP_MAGIC, bytes.as_slice()].concat());
            let lines = read([HEADER.as_bytes(), &bytes].concat()).unwrap();
            let filled = bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
            prop_assert_eq!(lines.len(), filled);
        }

        #[test]
        fn almost_good_lines_do_not_either(
            fields in proptest::collection::vec("[-C0-9A-Za-z.\" :]{0,20}", 8),
            cut in 0..9usize,
        ) {
            let line = fields[..cut.min(8)].join(",");
            let _ = read(format!("{HEADER}{line}\n").into_bytes()).unwrap();
        }
    }
}
