//! What an answer is worth, and what the shoppers know after it.

use serde::Deserialize;

use super::{
    Asked, Crowd, Pending, Shopper, What,
    ledger::{Done, Placed},
    order::OrderAnswer,
};
use crate::wire::{Answer, Lost, Outcome};

/// What an answer was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verdict {
    Fine,
    /// By the rules of the shop: not enough in stock.
    Refused,
    /// The shop has too much to do, and says so.
    Shed,
    Status(u16),
    Lost(Lost),
    /// An answer that cannot be right.
    Wrong,
}

#[derive(Deserialize)]
struct SessionAnswer {
    token: String,
}

#[derive(Deserialize)]
struct ProblemAnswer<'a> {
    code: &'a str,
}

impl Crowd {
    /// Takes an answer, or that there is none.
    pub(crate) fn heard(&mut self, asked: Asked, outcome: Outcome<'_>) -> Verdict {
        let verdict = match outcome {
            Ok(answer) if answer.status == 503 || answer.status == 429 => Verdict::Shed,
            Ok(answer) if (200..300).contains(&answer.status) && !answer.body.is_empty() => Verdict::Fine,
            Ok(answer) if answer.status == 409 && code(answer) == Some("out_of_stock") => Verdict::Refused,
            Ok(answer) => Verdict::Status(answer.status),
            Err(lost) => Verdict::Lost(lost),
        };
        // What is refused is not done. Of everything else that did not go well nobody knows.
        let overloaded = || outcome.is_ok_and(|answer| code(answer) == Some("overloaded"));
        let done = match verdict {
            Verdict::Fine => Some(Done::Surely),
            Verdict::Refused => None,
            // Turned away at the door.
            Verdict::Shed if overloaded() => None,
            Verdict::Status(status) if (400..500).contains(&status) => None,
            _ => Some(Done::Perhaps),
        };
        if let (Ok(answer), Some(shopper)) = (outcome, asked.what.shopper())
            && let Some(position) =
                answer.header("read-after").and_then(|value| std::str::from_utf8(value).ok())
        {
            let kept = &mut self.shoppers[shopper as usize].read_after;
            kept.clear();
            kept.push_str(position);
        }
        match asked.what {
            What::Page => {}
            What::Add { shopper, product, units } => {
                let shopper = self.released(shopper);
                done.into_iter().for_each(|done| shopper.cart.add(product, units, done));
            }
            What::Set { shopper, product, units } => {
                let shopper = self.released(shopper);
                done.into_iter().for_each(|done| shopper.cart.set(product, units, done));
            }
            What::Clear { shopper } => {
                let shopper = self.released(shopper);
                shopper.stuck &= done != Some(Done::Surely);
                done.into_iter().for_each(|done| shopper.cart.clear(done));
            }
            What::Order { shopper } => return self.heard_of_order(shopper, verdict, outcome),
            What::Login { guest, user } => return self.heard_of_login(guest, user, verdict, done, outcome),
            What::Guest { guest } => match (verdict, token(outcome)) {
                (Verdict::Fine, Some(token)) => {
                    let zone = self.shoppers[guest as usize].zone;
                    self.shoppers[guest as usize] = Shopper::new(token, None, zone);
                }
                (verdict, _) => {
                    self.gone.push(guest);
                    return if verdict == Verdict::Fine { Verdict::Wrong } else { verdict };
                }
            },
        }
        verdict
    }

    /// The request was sent once more, because its connection was closed. The first may be done all the same, now or
    /// later. Reads change nothing, orders have a key, and nothing else is sent twice.
    pub(crate) fn asked_again(&mut self, asked: Asked) {
        match asked.what {
            What::Set { shopper, product, units } => {
                self.shoppers[shopper as usize].cart.set(product, units, Done::Perhaps);
            }
            What::Clear { shopper } => self.shoppers[shopper as usize].cart.clear(Done::Perhaps),
            What::Page | What::Add { .. } | What::Order { .. } | What::Login { .. } | What::Guest { .. } => {}
        }
    }

    fn heard_of_order(&mut self, user: u32, verdict: Verdict, outcome: Outcome<'_>) -> Verdict {
        let shopper = self.released(user);
        let Some(pending) = shopper.pending.take() else { return Verdict::Wrong };
        self.unsettled.retain(|unsettled| *unsettled != user);
        match (verdict, outcome) {
            (Verdict::Fine, Ok(answer)) => self.placed(user, *pending, answer),
            (Verdict::Refused, _) => {
                self.shoppers[user as usize].stuck |= pending.lines.is_none();
                verdict
            }
            // Aborted for good: nothing was taken.
            (Verdict::Status(409), Ok(answer)) if code(answer) == Some("checkout_aborted") => verdict,
            (Verdict::Status(409), Ok(answer)) if code(answer) == Some("empty_cart") => {
                self.wrong.tell(|| {
                    format!("CRT-1: the cart of shopper {user} is said to be empty, and something is in it")
                });
                Verdict::Wrong
            }
            (Verdict::Status(status), _) if (400..500).contains(&status) && status != 409 => verdict,
            (_, outcome) => {
                self.shoppers[user as usize].pending = Some(pending);
                self.unsettled.push(user);
                // Its first request is still under way, and nothing is wrong with that.
                let in_progress = outcome.is_ok_and(|answer| code(answer) == Some("in_progress"));
                if in_progress { Verdict::Shed } else { verdict }
            }
        }
    }

    fn placed(&mut self, user: u32, pending: Pending, answer: Answer<'_>) -> Verdict {
        let parsed = OrderAnswer::parse(answer.body);
        let known = parsed.as_ref().and_then(|order| self.numbered(&order.items).zip(order.created_at()));
        let (Some(order), Some((lines, created_at))) = (parsed, known) else {
            self.wrong.tell(|| format!("an order was answered with {}", shown(answer.body)));
            return Verdict::Wrong;
        };
        let shopper = &mut self.shoppers[user as usize];
        let other = match &pending.lines {
            Some(asked_for) => (*asked_for != lines).then(|| format!("{lines:?} instead of {asked_for:?}")),
            None => {
                let other = shopper.cart.differs(&lines);
                shopper.cart.clear(Done::Surely);
                other.map(|(product, known, units)| {
                    format!("{units} of product {product}, known were {known:?}")
                })
            }
        };
        let zone = &self.zones[usize::from(pending.zone)];
        let other = other
            .or_else(|| order.fault())
            .or_else(|| (order.geo_zone != zone).then(|| format!("{} instead of {zone}", order.geo_zone)));
        let id: Box<str> = order.order_id.into();
        shopper.last_order = Some(id.clone());
        let lines = lines.into_iter().collect();
        let (zone, digest) = (pending.zone, order.digest());
        self.placed.push(Placed { id: id.clone(), shopper: user, zone, lines, digest, created_at });
        match other {
            None => Verdict::Fine,
            Some(other) => {
                self.wrong.tell(|| format!("order {id} is not what was ordered: {other}"));
                Verdict::Wrong
            }
        }
    }

    fn heard_of_login(
        &mut self,
        guest: u32,
        user: u32,
        verdict: Verdict,
        done: Option<Done>,
        outcome: Outcome<'_>,
    ) -> Verdict {
        self.released(user);
        let Some(done) = done else {
            self.released(guest);
            return verdict;
        };
        // Who may have logged in is a guest no more.
        let guest_cart = std::mem::take(&mut self.shoppers[guest as usize].cart);
        self.shoppers[guest as usize].token.clear();
        self.released(guest);
        self.gone.push(guest);
        let shopper = &mut self.shoppers[user as usize];
        shopper.cart.merge(guest_cart, done);
        match (verdict, token(outcome)) {
            (Verdict::Fine, Some(token)) => {
                shopper.token = token;
                verdict
            }
            (Verdict::Fine, None) => Verdict::Wrong,
            _ => verdict,
        }
    }
}

fn token(outcome: Outcome<'_>) -> Option<String> {
    let session: SessionAnswer = serde_json::from_slice(outcome.ok()?.body).ok()?;
    Some(session.token)
}

pub(crate) fn code<'a>(answer: Answer<'a>) -> Option<&'a str> {
    serde_json::from_slice::<ProblemAnswer<'a>>(answer.body).ok().map(|problem| problem.code)
}

/// The beginning of a body, for people.
pub(crate) fn shown(body: &[u8]) -> String {
    const SHOWN_CHARS: usize = 200;
    String::from_utf8_lossy(body).chars().take(SHOWN_CHARS).collect()
}
