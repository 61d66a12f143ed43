//! Wide projections and filters of many conjuncts: groups of operators that the search treats as
//! one operator.
//!
//! Independent operators may stand in any order. So a search over `n` independent columns would
//! examine a number of plans of equal cost that is exponential in `n`. If a projection or filter
//! has many such operators, the plain ones are combined into one operator. A column that an
//! operator above reads is not plain and stays separate, so that a filter on this column can still
//! move below the other columns.

use super::arena::Arena;
use super::ids::ParamId;
use super::tree::OperatorTree;

/// Maximum number of plain columns of a projection, or of conjuncts of a filter, that remain
/// separate operators. A larger number is combined into one operator.
pub(crate) const APART: usize = 32;

/// Maximum number of operators of a plan that is optimised. A plan with more operators runs as
/// written.
pub(crate) const MAX_OPERATORS: usize = 512;

/// The number of operators of a plan; a combined operator counts once.
pub(crate) fn operators(tree: &OperatorTree) -> usize {
    let mut count = 0;
    tree.visit(&mut |part| count += usize::from(matches!(part, OperatorTree::Op(..))));
    count
}

/// An operator of a projection or filter that is being lowered.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoweredOp {
    /// The operator.
    pub(super) param: ParamId,
    /// True if the operator is independent of the other operators of its projection or filter, and
    /// no operator above reads its result.
    pub(super) is_plain: bool,
}

/// Returns the operators of `steps`. Operators that are [plain](LoweredOp::is_plain), and not held in
/// place by `PINNED`, stay separate only up to [`APART`] of them; more are combined into one
/// operator, at the position of the first.
pub(super) fn joined(arena: &mut Arena, steps: &[LoweredOp]) -> Vec<ParamId> {
    let all = || steps.iter().map(|step| step.param);
    let is_joined = |step: &&LoweredOp| step.is_plain && !arena.spec(step.param).pinned;
    let plain: Vec<ParamId> = { steps.iter().filter(is_joined) }
        .map(|step| step.param)
        .collect();
    if plain.len() <= APART {
        return all().collect();
    }
    let mut apart = Vec::with_capacity(steps.len() - plain.len() + 1);
    let mut plain = plain.into_iter().peekable();
    let mut members = Vec::with_capacity(plain.len());
    let mut place = None;
    for param in all() {
        match plain.next_if_eq(&param) {
            Some(param) => {
                place.get_or_insert(apart.len());
                members.push(param);
            }
            None => apart.push(param),
        }
    }
    if let (Some(place), Some(together)) = (place, arena.together(members)) {
        apart.insert(place, together);
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::Compiled;
    use crate::rows::RowOp;
    use crate::testing::planned;

    async fn compiled(sql: &str) -> Compiled {
        let pipeline = planned(sql).await;
        Compiled::new(&pipeline.plan, pipeline.clauses.clone()).unwrap()
    }

    fn columns(count: usize) -> String {
        let columns = (0..count).map(|i| format!("id * {i} + 1 AS c{i}"));
        columns.collect::<Vec<_>>().join(", ")
    }

    #[tokio::test]
    async fn a_wide_projection_is_searched_as_one_operator() {
        let search = async |count: usize| {
            let sql = format!(
                "SELECT {} FROM t WHERE id > 3 SHUFFLE GLOBALLY BATCH 4",
                columns(count)
            );
            let report = compiled(&sql).await.report.unwrap();
            assert_eq!(report.doubt, None);
            report.saturation
        };
        let (some, many) = (search(100).await, search(1000).await);
        assert!(some.saturated && many.saturated);
        assert_eq!((some.nodes, some.classes), (many.nodes, many.classes));
        assert!(
            many.columns < 11 * some.columns,
            "{} and {} columns",
            some.columns,
            many.columns
        );
    }

    #[tokio::test]
    async fn a_filter_over_a_column_moves_below_the_others() {
        let list = columns(200);
        let sql = format!("SELECT * FROM (SELECT {list} FROM t) AS q WHERE c7 > 5");
        let chosen = compiled(&sql).await.chosen;
        let mut filtered = Vec::new();
        chosen.visit(&mut |node| {
            if matches!(node.op, RowOp::Filter { .. }) {
                filtered.push(node.schema.fields().len());
            }
        });
        assert!(filtered.len() == 1 && filtered[0] <= 3, "{filtered:?}");
        assert_eq!(chosen.schema.fields().len(), 200);
    }

    #[tokio::test]
    async fn a_plan_of_too_many_operators_runs_as_written() {
        let list = |level: usize| {
            let columns = (0..30).map(|i| format!("id + {} AS l{level}c{i}", level * i));
            columns.collect::<Vec<_>>().join(", ")
        };
        let nested = |first: usize, query: &str| {
            (first..first + 10).fold(query.to_owned(), |query, level| {
                format!("SELECT *, {} FROM ({query}) AS q{level}", list(level))
            })
        };
        let (below, above) = (nested(0, "SELECT id FROM t"), nested(10, "SELECT * FROM p"));
        let found = compiled(&format!("CREATE PIPELINE p AS {below}; {above}")).await;
        let doubt = found.report.unwrap().doubt.unwrap();
        assert!(doubt.contains("at most 512 are optimised"), "{doubt}");
        assert_eq!(found.chosen.schema.fields().len(), 601);
    }

    #[test]
    fn many_plain_operators_stand_where_the_first_of_them_does() {
        let mut arena = Arena::default();
        let mut steps = Vec::new();
        for i in 0..APART + 10 {
            let slot = arena.slot(&format!("s{i}"));
            let param = arena.row(slot, datafusion::logical_expr::lit(1), false);
            steps.push(LoweredOp {
                param,
                is_plain: i != 5,
            });
        }
        let apart = joined(&mut arena, &steps[..APART]);
        assert_eq!(apart.len(), APART);
        let together = joined(&mut arena, &steps);
        assert_eq!(together.len(), 2);
        assert_eq!(arena.each(together[0]).len(), APART + 9);
        assert_eq!(together[1], steps[5].param);
    }
}
