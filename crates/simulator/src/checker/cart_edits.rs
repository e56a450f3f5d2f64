//! What clearing a cart and setting a line took out of it, as far as clients can tell.

use super::Checker;
use crate::history::{Answer, Call, Customer, Item, Operation};

impl<'a> Checker<'a> {
    /// Whether an edit has taken out what `put_in` had put in: it saw it, and no order can have taken it before.
    pub(super) fn is_taken_out(&self, put_in: &Operation, item: Item, until: Option<&Operation>) -> bool {
        let Some(customer) = customer_of(put_in) else { return false };
        put_in.is_done()
            && self.edits(customer, item).any(|edit| {
                edit.is_done()
                    && put_in.is_before(edit)
                    && self.sees(put_in, edit)
                    && until.is_none_or(|read| edit.is_before(read) && self.sees(edit, read))
                    && !self.may_be_ordered_without(customer, put_in, edit)
            })
    }

    /// Whether an edit may have seen what `put_in` had put in, and taken it out.
    pub(super) fn may_be_taken_out(
        &self,
        put_in: &Operation,
        customer: Customer,
        item: Item,
        until: Option<&Operation>,
    ) -> bool {
        self.edits(customer, item).any(|edit| {
            let ends_ms = if edit.is_done() { edit.answered_ms } else { i64::MAX };
            !std::ptr::eq(edit, put_in)
                && edit.may_be_done()
                && ends_ms >= put_in.asked_ms
                && until.is_none_or(|read| edit.has_begun_before_the_end_of(read))
        })
    }

    /// What replaces or removes a line of this item.
    fn edits(&self, customer: Customer, item: Item) -> impl Iterator<Item = &'a Operation> {
        let edits = self.edits.get(&customer).map_or(&[][..], Vec::as_slice);
        edits.iter().copied().filter(move |edit| match edit.call {
            Call::SetLine { item: line, .. } => line == item,
            _ => true,
        })
    }

    /// Whether an order of the cart may have read what was put in, and not the edit that took it out.
    fn may_be_ordered_without(&self, customer: Customer, put_in: &Operation, edit: &Operation) -> bool {
        self.end.orders.iter().any(|((of, key), order)| {
            if *of != customer || order.as_ref().is_none_or(|order| !order.is_of_cart) {
                return false;
            }
            let asked = self.asked.get(&(*of, key.as_str())).map_or(&[][..], Vec::as_slice);
            let placed = asked.iter().filter(|ask| matches!(ask.answer, Answer::Placed { .. }));
            let ends_ms = placed.map(|ask| ask.answered_ms).min().unwrap_or(i64::MAX);
            let is_without = |ask: &&Operation| ask.asked_ms <= edit.answered_ms || !self.sees(edit, ask);
            ends_ms >= put_in.asked_ms && asked.iter().any(is_without)
        })
    }
}

/// Whose cart something went into directly. What a guest put in comes with the login, or a little later.
fn customer_of(put_in: &Operation) -> Option<Customer> {
    match put_in.call {
        Call::Add { customer, guest: None, .. } | Call::SetLine { customer, .. } => Some(customer),
        _ => None,
    }
}
