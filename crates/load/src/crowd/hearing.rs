//! What an answer is worth, and what the shoppers know after it.

use serde::Deserialize;

use super::{
    Asked, Crowd, LastOrder, Pending, Shopper, What,
    asked::Source,
    checking::Wanted,
    ledger::{Done, Placed, Units},
    order::OrderAnswer,
};
use crate::{
    rules::Rule,
    wire::{Answer, Lost, Outcome},
};

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
    #[serde(default)]
    user_id: String,
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
        let right = match asked.what {
            What::Add { shopper, product, units, .. } => {
                let cart = &mut self.released(shopper).cart;
                done.into_iter().for_each(|done| cart.add(product, units, done));
                self.is_right_change(asked.what, verdict, outcome)
            }
            What::Set { shopper, product, units, .. } => {
                let cart = &mut self.released(shopper).cart;
                done.into_iter().for_each(|done| cart.set(product, units, done));
                self.is_right_change(asked.what, verdict, outcome)
            }
            What::Clear { shopper } => {
                let shopper = self.released(shopper);
                shopper.stuck &= done != Some(Done::Surely);
                done.into_iter().for_each(|done| shopper.cart.clear(done));
                self.is_right_change(asked.what, verdict, outcome)
            }
            What::Order { shopper } => return self.heard_of_order(shopper, verdict, outcome),
            What::Login { guest, user } => return self.heard_of_login(guest, user, verdict, done, outcome),
            What::Guest { guest } => match (verdict, session(outcome)) {
                (Verdict::Fine, Some(session)) => {
                    let Shopper { zone, changes, .. } = self.shoppers[guest as usize];
                    let fresh = Shopper::new(session.token, None, zone);
                    // A read of the guest before is none of this one's.
                    self.shoppers[guest as usize] = Shopper { changes: changes.wrapping_add(1), ..fresh };
                    true
                }
                (verdict, _) => {
                    self.gone.push(guest);
                    self.is_no_session(asked.what, verdict, outcome)
                }
            },
            read => match outcome {
                Ok(answer) if verdict == Verdict::Fine => self.is_right_read(read, answer.body),
                _ => true,
            },
        };
        if right { verdict } else { Verdict::Wrong }
    }

    fn is_right_read(&mut self, what: What, body: &[u8]) -> bool {
        match what {
            What::Product { product } => self.is_right_product(what, product, body),
            What::Listing { range } => self.is_right_listing(what, range, body),
            What::PlacedOrder { placed } => self.is_right_order(what, placed, body),
            What::History { user, last, orders_begun } => {
                self.is_right_history(what, user, last, orders_begun, body)
            }
            // With a change in between nobody knows which came first.
            What::Cart { shopper, changes } if self.shoppers[shopper as usize].changes == changes => {
                self.is_right_cart(Source::Asked(what), shopper, body)
            }
            _ => true,
        }
    }

    /// The answer to a change of a cart: the cart after it, or that there is not enough in stock.
    fn is_right_change(&mut self, what: What, verdict: Verdict, outcome: Outcome<'_>) -> bool {
        let (Some(shopper), Ok(answer)) = (what.shopper(), outcome) else { return true };
        let source = Source::Asked(what);
        match (verdict, what) {
            (Verdict::Fine, _) => self.is_right_cart(source, shopper, answer.body),
            (Verdict::Refused, What::Add { product, units, released, .. }) => {
                let zone = self.shoppers[shopper as usize].zone;
                let wanted = Wanted { product, units: Units::exactly(units), released, own: 0 };
                self.is_right_refusal(source, Some(zone), &[wanted], answer.body)
            }
            (Verdict::Refused, What::Set { product, units, released, .. }) => {
                let wanted = Wanted { product, units: Units::exactly(units), released, own: 0 };
                self.is_right_refusal(source, None, &[wanted], answer.body)
            }
            // Nothing that takes everything out can be short.
            (Verdict::Refused, _) => self.is_right_refusal(source, None, &[], answer.body),
            _ => true,
        }
    }

    /// The request was sent once more, because its connection was closed. The first may be done all the same, now or
    /// later. Reads change nothing, orders have a key, and nothing else is sent twice.
    pub(crate) fn asked_again(&mut self, asked: Asked) {
        match asked.what {
            What::Set { shopper, product, units, .. } => {
                self.shoppers[shopper as usize].cart.set(product, units, Done::Perhaps);
            }
            What::Clear { shopper } => self.shoppers[shopper as usize].cart.clear(Done::Perhaps),
            What::Order { shopper } => {
                let Some(pending) = &mut self.shoppers[shopper as usize].pending else { return };
                pending.sends += 1;
                self.taken.send(&pending.units, pending.zone);
            }
            _ => {}
        }
    }

    fn heard_of_order(&mut self, user: u32, verdict: Verdict, outcome: Outcome<'_>) -> Verdict {
        let shopper = self.released(user);
        let Some(pending) = shopper.pending.take() else { return Verdict::Wrong };
        self.unsettled.retain(|unsettled| *unsettled != user);
        let source = Source::Order { user, pending: &pending };
        let right = match (verdict, outcome) {
            (Verdict::Fine, Ok(answer)) => self.placed(user, *pending, answer),
            (Verdict::Refused, Ok(answer)) => {
                let right = self.is_right_order_refusal(user, &pending, answer.body);
                self.shoppers[user as usize].stuck |= pending.lines.is_none();
                self.not_placed(&pending);
                right
            }
            // Aborted for good: nothing was taken.
            (Verdict::Status(409), Ok(answer)) if code(answer) == Some("checkout_aborted") => {
                self.not_placed(&pending);
                true
            }
            (Verdict::Status(409), Ok(answer)) if code(answer) == Some("empty_cart") => {
                let expected = || format!("an order of {:?}", self.shoppers[user as usize].cart.lines);
                let expected = expected();
                let got = shown(answer.body);
                self.not_placed(&pending);
                self.check(source, Rule::CartNotEmpty, false, |_| (expected, got))
            }
            (Verdict::Status(status), _) if (400..500).contains(&status) && status != 409 => {
                self.not_placed(&pending);
                true
            }
            (_, outcome) => {
                self.shoppers[user as usize].pending = Some(pending);
                self.unsettled.push(user);
                // Its first request is still under way, and nothing is wrong with that.
                let in_progress = outcome.is_ok_and(|answer| code(answer) == Some("in_progress"));
                return if in_progress { Verdict::Shed } else { verdict };
            }
        };
        if right { verdict } else { Verdict::Wrong }
    }

    fn is_right_order_refusal(&mut self, user: u32, pending: &Pending, body: &[u8]) -> bool {
        let cart = &self.shoppers[user as usize].cart;
        let wanted = pending.units.iter().zip(&pending.released).map(|((product, most), released)| {
            let units = if pending.lines.is_some() { Units::exactly(*most) } else { cart.units(*product) };
            Wanted { product: *product, units, released: *released, own: *most }
        });
        let wanted: Vec<Wanted> = wanted.collect();
        self.is_right_refusal(Source::Order { user, pending }, Some(pending.zone), &wanted, body)
    }

    /// Whether an answer that holds no session is a refusal, and not a success without a token.
    fn is_no_session(&mut self, what: What, verdict: Verdict, outcome: Outcome<'_>) -> bool {
        let body = outcome.map(|answer| answer.body).unwrap_or_default();
        verdict != Verdict::Fine
            || self.check(Source::Asked(what), Rule::AnswerFormat, false, |_| {
                ("a session with a token".to_owned(), shown(body))
            })
    }

    /// What an order held that was not placed. One that was sent more than once may have left something held, which the
    /// shop gives back in its own time.
    fn not_placed(&mut self, pending: &Pending) {
        if pending.sends == 1 {
            self.taken.release(&pending.units, pending.zone);
        }
    }

    fn placed(&mut self, user: u32, pending: Pending, answer: Answer<'_>) -> bool {
        let source = Source::Order { user, pending: &pending };
        let parsed = OrderAnswer::parse(answer.body);
        let known = parsed.as_ref().and_then(|order| self.numbered(&order.items).zip(order.created_at()));
        let is_order = known.is_some();
        self.check(source, Rule::AnswerFormat, is_order, |_| {
            ("an order of products of the catalogue".to_owned(), shown(answer.body))
        });
        let (Some(order), Some((lines, created_at))) = (parsed, known) else { return false };
        let of_cart = pending.lines.is_none();
        if of_cart {
            self.check(source, Rule::CartNotEmpty, true, |_| Default::default());
        }
        let right =
            self.is_right_new_order(source, user, pending.zone, pending.lines.as_ref(), &order, &lines);
        let shopper = &mut self.shoppers[user as usize];
        if of_cart {
            shopper.cart.clear(Done::Surely);
        }
        let id: Box<str> = order.order_id.into();
        let lines = lines.into_iter().collect();
        let (zone, digest, placed) = (pending.zone, order.digest(), self.placed.len() as u32);
        let Pending { key, body, .. } = pending;
        shopper.last_order = Some(Box::new(LastOrder { placed, key, body }));
        self.order_ids.insert(id.clone());
        self.placed.push(Placed { id, shopper: user, zone, lines, digest, created_at });
        right
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
        let (Verdict::Fine, Some(session)) = (verdict, session(outcome)) else {
            let right = self.is_no_session(What::Login { guest, user }, verdict, outcome);
            return if right { verdict } else { Verdict::Wrong };
        };
        shopper.token = session.token;
        let same = shopper.user_id.is_empty() || *shopper.user_id == session.user_id;
        let source = Source::Asked(What::Login { guest, user });
        let right = self.check(source, Rule::LoginUser, same, |crowd| {
            (crowd.shoppers[user as usize].user_id.to_string(), session.user_id)
        });
        if right { verdict } else { Verdict::Wrong }
    }
}

fn session(outcome: Outcome<'_>) -> Option<SessionAnswer> {
    serde_json::from_slice(outcome.ok()?.body).ok()
}

pub(crate) fn code<'a>(answer: Answer<'a>) -> Option<&'a str> {
    serde_json::from_slice::<ProblemAnswer<'a>>(answer.body).ok().map(|problem| problem.code)
}

/// The beginning of a body, for people.
pub(crate) fn shown(body: &[u8]) -> String {
    const SHOWN_CHARS: usize = 200;
    String::from_utf8_lossy(body).chars().take(SHOWN_CHARS).collect()
}
