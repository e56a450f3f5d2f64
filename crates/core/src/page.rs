//! Pages of long lists.

pub const PAGE_ITEMS_DEFAULT: usize = 20;
pub const PAGE_ITEMS_MAX: usize = 100;

/// One page. `next` is where the following one starts; without it the list has ended. A page may hold fewer items
/// than were asked for and still have a `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, P> {
    pub items: Vec<T>,
    pub next: Option<P>,
}

impl<T, P> Page<T, P> {
    pub fn empty() -> Self {
        Self { items: Vec::new(), next: None }
    }

    /// Cuts a list that was read one item further than `limit` to a page.
    pub fn cut(mut items: Vec<T>, limit: usize, position: impl Fn(&T) -> P) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(position) } else { None };
        Self { items, next }
    }

    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U, P> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next }
    }
}
