//! Moving an order: one decision in its partition, then its lists.

use std::sync::Arc;

use mobimir_core::{
    id::OrderId,
    order::{OrderStatus, StatusChange},
    ports::{StoreError, StoreResult, Transition},
};

use super::{Inner, book::Move, pending::move_id, rows::Written};
use crate::link::Decided;

/// How often a move is put to decision when its answer was lost and nothing was decided.
const DECISIONS_MAX: usize = 4;

impl Inner {
    pub(super) async fn transition(
        self: &Arc<Self>,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let _turn = self.turns.of(id.as_bytes()).await;
        let read = self.book.read(&self.link, id).await?;
        let standing = match read {
            Some(standing) if standing.order.status == from => standing,
            // A read that was late must not refuse a move.
            read => match self.book.read_decided(&self.link, id).await?.or(read) {
                Some(standing) if standing.order.status == from => standing,
                Some(standing) => return Ok(Transition::StandsAt(standing.order.status)),
                None => return Ok(Transition::NoSuchOrder),
            },
        };
        let planned = Move::plan(&standing, change, move_id());
        let note = self.pending.note(&self.link, &self.registers, id, planned.id, planned.seq).await?;
        match self.decide(&planned).await? {
            Transition::Moved(moved) => {
                let written = Written::new(moved);
                self.list(&written).await.map_err(decided_but_not_listed)?;
                self.remove_later(note);
                Ok(Transition::Moved(written.order))
            }
            elsewhere => {
                self.remove_later(note);
                Ok(elsewhere)
            }
        }
    }

    /// Puts a move to decision. It is the same move each time, and its number can be taken once.
    pub(super) async fn decide(&self, planned: &Move) -> StoreResult<Transition> {
        let id = planned.moved.id;
        let mut lost = None;
        for _ in 0..DECISIONS_MAX {
            match self.book.decide(&self.link, planned, super::owed(id)).await? {
                Decided::Applied => return Ok(Transition::Moved(planned.moved.clone())),
                Decided::Refused => {}
                Decided::Lost(failure) => lost = Some(failure),
            }
            match self.book.decided_move(&self.link, id, planned.seq).await {
                Ok(Some((Some(mover), _))) if mover == planned.id => {
                    return Ok(Transition::Moved(planned.moved.clone()));
                }
                Ok(Some((_, stands_at))) => return Ok(Transition::StandsAt(stands_at)),
                Ok(None) => {}
                Err(error) => return Err(lost.map_or(error, |failure| failure.of_write("move"))),
            }
        }
        Err(match lost {
            Some(failure) => failure.of_write("move"),
            None => StoreError::Unavailable {
                what: format!("Cassandra, move: order {id} is not yet where moves are decided"),
                source: None,
            },
        })
    }
}

/// The move stands, and its note is there: the lists follow within seconds.
fn decided_but_not_listed(error: StoreError) -> StoreError {
    let what = format!("the order was moved, but not in its lists: {error}");
    StoreError::Unknown { what, source: Some(Box::new(error)) }
}
