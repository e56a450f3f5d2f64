//! The second reading: puts the lines of an invoice together and makes orders of them.

use std::collections::{BTreeMap, HashMap};

use mobimir_core::{
    checkout::LINES_MAX,
    id::{self, OrderId, UserId},
    money::Money,
    order::{Order, OrderLine, OrderStatus},
    product::{Product, QUANTITY_MAX},
    time::Version,
};

use super::{
    line::{Kind, Line},
    survey::{Invoice, Survey, address, user_id},
};

/// Lines wait here until their invoice is complete. An invoice usually stands in one piece, so few wait at a time;
/// one that is continued further down waits for its rest.
pub(crate) struct Assembly<'a> {
    survey: &'a Survey,
    products: &'a BTreeMap<String, Product>,
    waiting: HashMap<String, Draft>,
    pub(crate) counts: Counts,
}

/// What had to be decided while lines were put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) orders: u64,
    pub(crate) cancelled: u64,
    pub(crate) of_guests: u64,
    /// Invoices that had to become more than one order.
    pub(crate) split: u64,
    /// Lines that joined an earlier line of the same product.
    pub(crate) joined: u64,
    /// Joined lines whose own price was another, and by how much the invoice differs from its order for it.
    pub(crate) repriced: u64,
    pub(crate) repriced_kopecks: i128,
}

#[derive(Default)]
struct Draft {
    seen: u32,
    lines: Vec<DraftLine>,
    /// The last line of each product.
    by_code: HashMap<String, usize>,
}

struct DraftLine {
    stock_code: String,
    price: Money,
    quantity: u64,
}

/// The file is not what the first reading saw.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileChanged;

impl<'a> Assembly<'a> {
    pub(crate) fn new(survey: &'a Survey, products: &'a BTreeMap<String, Product>) -> Self {
        Self { survey, products, waiting: HashMap::new(), counts: Counts::default() }
    }

    /// Takes a line; returns the orders of its invoice when it was the last one missing.
    pub(crate) fn add(&mut self, line: Line) -> Result<Vec<Order>, FileChanged> {
        if line.kind == Kind::Adjustment {
            return Ok(Vec::new());
        }
        let number = line.invoice.clone();
        let cancelled = line.kind == Kind::Cancellation;
        let invoice = self.survey.invoice(&number).ok_or(FileChanged)?;
        let draft = self.waiting.entry(number.clone()).or_default();
        draft.add(line, &mut self.counts);
        if draft.seen < invoice.lines {
            return Ok(Vec::new());
        }
        let draft = self.waiting.remove(&number).ok_or(FileChanged)?;
        let status = if cancelled { OrderStatus::Cancelled } else { OrderStatus::Delivered };
        let parts = draft.parts();
        self.counts.split += u64::from(parts.len() > 1);
        let mut orders = Vec::with_capacity(parts.len());
        for (part, lines) in (1..).zip(parts) {
            let lines = lines.into_iter().map(|line| self.order_line(line)).collect::<Result<_, _>>()?;
            orders.push(order(&number, part, invoice, status, lines));
        }
        let count = orders.len() as u64;
        self.counts.orders += count;
        self.counts.cancelled += if cancelled { count } else { 0 };
        self.counts.of_guests += if invoice.customer.is_none() { count } else { 0 };
        Ok(orders)
    }

    /// To be asked at the end: every invoice must have been completed.
    pub(crate) fn finish(self) -> Result<Counts, FileChanged> {
        if self.waiting.is_empty() { Ok(self.counts) } else { Err(FileChanged) }
    }

    fn order_line(&self, line: DraftLine) -> Result<OrderLine, FileChanged> {
        let product = self.products.get(&line.stock_code).ok_or(FileChanged)?;
        Ok(OrderLine {
            product_id: product.id,
            name: product.name.clone(),
            category: product.category.clone(),
            price: line.price,
            quantity: line.quantity,
        })
    }
}

impl Draft {
    /// Lines of the same product count together, at the price of the first.
    fn add(&mut self, line: Line, counts: &mut Counts) {
        self.seen += 1;
        if let Some(&place) = self.by_code.get(&line.stock_code) {
            let earlier = &mut self.lines[place];
            if earlier.quantity + line.quantity <= QUANTITY_MAX {
                earlier.quantity += line.quantity;
                counts.joined += 1;
                if earlier.price != line.price {
                    counts.repriced += 1;
                    let off = line.price.kopecks() - earlier.price.kopecks();
                    counts.repriced_kopecks += off * i128::from(line.quantity);
                }
                return;
            }
        }
        self.by_code.insert(line.stock_code.clone(), self.lines.len());
        self.lines.push(DraftLine {
            stock_code: line.stock_code,
            price: line.price,
            quantity: line.quantity,
        });
    }

    /// Cuts the lines into orders: at most [`LINES_MAX`] lines each, and no product twice.
    fn parts(self) -> Vec<Vec<DraftLine>> {
        let mut parts: Vec<Vec<DraftLine>> = Vec::new();
        for line in self.lines {
            match parts.last_mut() {
                Some(part)
                    if part.len() < LINES_MAX && part.iter().all(|l| l.stock_code != line.stock_code) =>
                {
                    part.push(line);
                }
                _ => parts.push(vec![line]),
            }
        }
        parts
    }
}

/// The first part goes by the invoice's own number, the others by `536365/2` and so on.
fn order(number: &str, part: u32, invoice: &Invoice, status: OrderStatus, lines: Vec<OrderLine>) -> Order {
    let reference = if part == 1 { number.to_owned() } else { format!("{number}/{part}") };
    Order {
        id: order_id(&reference),
        user_id: invoice.customer.as_deref().map_or_else(|| guest_id(number), user_id),
        status,
        geo_zone: invoice.zone,
        lines,
        shipping_address: address(&invoice.country),
        payment_method: Some(format!("Invoice {reference}")),
        created_at: invoice.at,
        updated_at: invoice.at,
        // Days in the past need no spreading, and bucket 0 is read whatever a day's count is.
        bucket: 0,
        version: Version::default().next(invoice.at),
    }
}

pub(crate) fn order_id(reference: &str) -> OrderId {
    OrderId(id::derived("online-retail-order", &[reference.as_bytes()]))
}

/// Whom an invoice without a customer belongs to: somebody of whom there is no record.
pub(crate) fn guest_id(invoice: &str) -> UserId {
    UserId(id::derived("online-retail-guest", &[invoice.as_bytes()]))
}
