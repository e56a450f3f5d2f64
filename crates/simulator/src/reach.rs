//! With two data centres: what a reader may miss of what was acknowledged, by the rules that the policies give
//! (decisions 10 and 29). Plain data and a judgement, for the checker.

use crate::history::Operation;

/// How long a message between data centres takes at most while both are there.
const LAG_MS: i64 = 3_000;
/// How long an instance that could not know goes on as before: it looks every two seconds, and may have to look
/// again.
const LEARN_MS: i64 = 8_000;

#[derive(Clone, Debug, Default)]
pub struct DataCentres {
    /// Where each instance is.
    pub of_instances: Vec<usize>,
    /// Where conditional statements are decided.
    pub home: usize,
    pub losses: Vec<Loss>,
    /// Since when instances stood still or were away, and until when.
    pub absences: Vec<Absence>,
}

#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub dc: usize,
    pub from_ms: i64,
    pub to_ms: i64,
}

#[derive(Clone, Copy, Debug)]
pub struct Absence {
    pub instance: usize,
    pub from_ms: i64,
    pub to_ms: i64,
}

fn overlaps(read: &Operation, from_ms: i64, to_ms: i64) -> bool {
    read.answered_ms >= from_ms && read.asked_ms <= to_ms
}

impl DataCentres {
    /// Whether `read` has to see what was acknowledged in every data centre, or in the one that went on.
    pub fn sees_everywhere(&self, read: &Operation) -> bool {
        let is_back = |loss: &Loss| overlaps(read, loss.to_ms, loss.to_ms + LEARN_MS);
        let is_unaware = |absence: &Absence| {
            absence.instance == read.instance && overlaps(read, absence.from_ms, absence.to_ms + LEARN_MS)
        };
        !self.losses.iter().any(is_back) && !self.absences.iter().any(is_unaware)
    }

    /// Whether `read` has to see what one data centre alone has acknowledged.
    pub fn sees(&self, acknowledged: &Operation, read: &Operation) -> bool {
        let written_in = self.of_instances.get(acknowledged.instance);
        self.sees_from(written_in.copied(), acknowledged, read)
    }

    /// The same of what was decided, and so written at home.
    pub fn sees_decided(&self, decided: &Operation, read: &Operation) -> bool {
        self.sees_from(Some(self.home), decided, read)
    }

    fn sees_from(&self, written_in: Option<usize>, acknowledged: &Operation, read: &Operation) -> bool {
        if !self.sees_everywhere(read) {
            return false;
        }
        let is_near = written_in == self.of_instances.get(read.instance).copied();
        if !is_near && read.asked_ms < acknowledged.answered_ms + LAG_MS {
            return false;
        }
        // What was acknowledged a moment before the loss, or where nobody had noticed it, is missing elsewhere
        // until the data centre is back.
        let is_cut_off = |loss: &Loss| {
            let at_the_loss = acknowledged.answered_ms >= loss.from_ms - LAG_MS
                && acknowledged.asked_ms <= loss.from_ms + LEARN_MS;
            let unnoticed = !is_near && overlaps(acknowledged, loss.from_ms, loss.to_ms);
            (at_the_loss || unnoticed) && overlaps(read, loss.from_ms, loss.to_ms + LEARN_MS)
        };
        !self.losses.iter().any(is_cut_off)
    }
}
