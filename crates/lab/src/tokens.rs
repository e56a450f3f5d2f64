//! Which tokens each node of a new ring gets. They are preset, so that all nodes can start at the same time.

pub(crate) const TOKENS_PER_NODE: u16 = 16;

/// Two nodes must not share a token, even in different data centres.
const DATA_CENTRE_OFFSET: i128 = 1000;

/// The tokens of node `index` of `nodes` in the data centre `data_centre`: evenly spread over the whole ring, and
/// taken in turns with the other nodes, so that each owns the same share and neighbours are always different nodes.
pub(crate) fn tokens(data_centre: u16, index: u16, nodes: u16) -> Vec<i64> {
    let slots = i128::from(nodes) * i128::from(TOKENS_PER_NODE);
    let step = (1_i128 << 64) / slots;
    (0..TOKENS_PER_NODE)
        .map(|turn| {
            let slot = i128::from(turn) * i128::from(nodes) + i128::from(index);
            // Half a step in: the lowest token of all has a meaning of its own to the server.
            let token = i128::from(i64::MIN) + slot * step + step / 2;
            let token = token + i128::from(data_centre) * DATA_CENTRE_OFFSET;
            i64::try_from(token).unwrap_or(i64::MAX)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_node_owns_the_same_share_and_no_token_is_given_twice() {
        for nodes in [1, 2, 3, 5, 32] {
            let mut owners: Vec<(i64, u16)> = (0..nodes)
                .flat_map(|index| tokens(0, index, nodes).into_iter().map(move |token| (token, index)))
                .collect();
            owners.sort_unstable();
            assert_eq!(owners.len(), usize::from(nodes * TOKENS_PER_NODE));
            let mut gaps = BTreeSet::new();
            for pair in owners.windows(2) {
                gaps.insert(pair[1].0.wrapping_sub(pair[0].0));
                assert!(nodes == 1 || pair[0].1 != pair[1].1, "neighbours are different nodes");
            }
            assert_eq!(gaps.len(), 1, "{nodes} nodes: {gaps:?}");
        }
    }

    #[test]
    fn data_centres_share_no_token() {
        let all: Vec<i64> = (0..3)
            .flat_map(|data_centre| (0..3).flat_map(move |index| tokens(data_centre, index, 3)))
            .collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(!all.contains(&i64::MIN) && !all.contains(&i64::MAX));
    }
}
