//! Requests that are due and not sent yet, oldest first.
//!
//! A request that nobody can send now, because every shopper who could is busy, waits apart with others of its
//! kind and does not delay requests of other kinds. In one queue for all, a few thousand orders that wait for a
//! free user would delay every page behind them, and the load would be late, not the shop.

use std::collections::VecDeque;

use crate::{crowd::Wish, operation::Operation};

const KINDS: usize = Operation::ALL.len();

#[derive(Default)]
pub(crate) struct Due {
    next: VecDeque<(u64, Wish)>,
    /// Those that nobody could send when they were tried, by kind. They are older than all of their kind in
    /// `next`.
    blocked: [VecDeque<(u64, Wish)>; KINDS],
}

impl Due {
    pub(crate) fn push_back(&mut self, due: (u64, Wish)) {
        self.next.push_back(due);
    }

    pub(crate) fn push_front(&mut self, due: (u64, Wish)) {
        self.next.push_front(due);
    }

    pub(crate) fn len(&self) -> usize {
        self.next.len() + self.blocked.iter().map(VecDeque::len).sum::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next.is_empty() && self.blocked.iter().all(VecDeque::is_empty)
    }

    /// Tries everything once more: shoppers may have become free.
    pub(crate) fn turn(&mut self) -> Turn<'_> {
        Turn { due: self, kind: 0, failed: [false; KINDS] }
    }
}

/// One pass over what is due. A kind that nobody can send is tried once in a pass.
pub(crate) struct Turn<'a> {
    due: &'a mut Due,
    /// Of the blocked ones that are tried now; after the last kind come the others.
    kind: usize,
    failed: [bool; KINDS],
}

impl Turn<'_> {
    /// The next that can be sent: when it was due, and what `ask` made of it. `None` when there is none in
    /// this pass.
    pub(crate) fn next<T>(&mut self, mut ask: impl FnMut(u64, &Wish) -> Option<T>) -> Option<(u64, T)> {
        while let Some(blocked) = self.due.blocked.get_mut(self.kind) {
            if let Some((due_ns, wish)) = blocked.front() {
                if let Some(asked) = ask(*due_ns, wish) {
                    let due_ns = *due_ns;
                    blocked.pop_front();
                    return Some((due_ns, asked));
                }
                self.failed[self.kind] = true;
            }
            self.kind += 1;
        }
        while let Some((due_ns, wish)) = self.due.next.pop_front() {
            let kind = kind(&wish);
            if !self.failed[kind]
                && let Some(asked) = ask(due_ns, &wish)
            {
                return Some((due_ns, asked));
            }
            self.failed[kind] = true;
            self.due.blocked[kind].push_back((due_ns, wish));
        }
        None
    }
}

fn kind(wish: &Wish) -> usize {
    match wish {
        Wish::Any(operation) => operation.index(),
        Wish::Page(_) => Operation::ProductPage.index(),
        Wish::Order(_) => Operation::Order.index(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Wish = Wish::Any(Operation::ProductPage);
    const ORDER: Wish = Wish::Any(Operation::Order);

    fn is_page(wish: &Wish) -> bool {
        matches!(wish, Wish::Any(Operation::ProductPage))
    }

    /// All that can be sent in one pass while no order can, and how often something was tried.
    fn pages_sent(due: &mut Due) -> (Vec<u64>, usize) {
        let (mut turn, mut sent, mut tried) = (due.turn(), Vec::new(), 0);
        while let Some((due_ns, ())) = turn.next(|_, wish| {
            tried += 1;
            is_page(wish).then_some(())
        }) {
            sent.push(due_ns);
        }
        (sent, tried)
    }

    /// However many orders wait for a free user, a page is sent in the pass in which it becomes due.
    #[test]
    fn orders_that_nobody_can_send_do_not_delay_pages() {
        let mut due = Due::default();
        (0..5_000).for_each(|at_ns| due.push_back((at_ns, ORDER)));
        due.push_back((5_000, PAGE));
        assert_eq!(pages_sent(&mut due), (vec![5_000], 2));
        due.push_back((5_001, ORDER));
        due.push_back((5_002, PAGE));
        assert_eq!(pages_sent(&mut due), (vec![5_002], 2));
        assert_eq!(due.len(), 5_001);
        assert!(!due.is_empty());
    }

    #[test]
    fn what_was_blocked_leaves_oldest_first() {
        let mut due = Due::default();
        for at_ns in 0..3 {
            due.push_back((at_ns, ORDER));
        }
        assert_eq!(pages_sent(&mut due), (vec![], 1));
        due.push_back((3, ORDER));
        due.push_back((4, PAGE));
        due.push_front((5, Wish::Any(Operation::GuestSession)));
        let mut turn = due.turn();
        let sent: Vec<u64> =
            std::iter::from_fn(|| turn.next(|_, _| Some(()))).map(|(at_ns, ())| at_ns).collect();
        assert_eq!(sent, [0, 1, 2, 5, 3, 4]);
        assert!(due.is_empty());
        assert_eq!(due.len(), 0);
    }
}
