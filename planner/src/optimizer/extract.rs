//! Extracts, from a class of the e-graph, the cheapest plan with at most one cache point.
//!
//! Row counts and bytes belong to classes, so a node's own cost is the same in every plan that
//! contains the node. The best plan of a class is therefore its best node over the best plans of
//! the node's inputs. With a cache, each class has two optima: the least cost of one epoch without
//! a cache point in the plan (`each`), and the least cost of all epochs with one cache point in the
//! plan (`cached`). So order and cache point are chosen together, and a plan with a cache may have
//! another order than the best plan without.
//!
//! Among plans of equal cost, the plan whose text sorts first is chosen, so the choice does not
//! depend on the order in which the graph was built.

use std::collections::{BTreeSet, HashMap};

use egg::{Id, Language};

use super::cache::CacheCosts;
use super::coefficients::Coefficients;
use super::cost::Cost;
use super::graph::{PlanGraph, param_of, plan_fact};
use super::ids::ParamId;
use super::lang::Node;
use super::price::own;
use super::tree::OperatorTree;

/// The cost of a plan, and its cache point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Priced {
    /// Cost of all epochs of the plan together.
    pub total: Cost,
    /// The class whose rows the plan caches; `None` if the plan caches no rows.
    pub cached_at: Option<Id>,
    /// Cost of computing one row of the cached class; 0 if the plan caches no rows.
    pub cached_row: Cost,
}

/// Returns the plan of the class `root` that is cheapest over all epochs, with a cache point if one
/// lowers the cost. If `at` is present, the plan caches the rows of one of the operators in `at` if
/// that is legal, even if a cache does not lower the cost. `stored(class)` returns the number of
/// rows of `class` that the cache holds already, or `None` if the rows of `class` must not be
/// cached.
///
/// Returns `None` if `root` contains no plan of finite cost.
pub(crate) fn cheapest(
    graph: &PlanGraph,
    prices: &Coefficients,
    cache: &CacheCosts,
    at: Option<&BTreeSet<ParamId>>,
    stored: &dyn Fn(Id) -> Option<u64>,
    root: Id,
) -> Option<(OperatorTree, Priced)> {
    let root = graph.find(root);
    let best = Best::of(graph, prices, cache, at, stored);
    let mut chooser = Chooser {
        best: &best,
        chosen: HashMap::new(),
        cached: None,
    };
    let each = best.totals.get(&(root, Caching::Each)).copied()?;
    let each = each.saturating_mul(cache.epochs.into());
    let cached = best.totals.get(&(root, Caching::Cached)).copied();
    let (state, total) = match cached {
        Some(cached) if cached < each || at.is_some() => (Caching::Cached, cached),
        _ => (Caching::Each, each),
    };
    // A cost of `Cost::MAX` means that the sum overflowed. Costs then no longer grow from input to
    // output, so a class's best node could have the class itself as an input.
    if total == Cost::MAX {
        return None;
    }
    let tree = chooser.build(root, state)?;
    let (cached_at, cached_row) = chooser.cached.unzip();
    let priced = Priced {
        total,
        cached_at,
        cached_row: cached_row.unwrap_or_default(),
    };
    Some((tree, priced))
}

/// The two optima that are found for each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Caching {
    /// The least cost of one epoch of a plan without a cache point.
    Each,
    /// The least cost of all epochs of a plan with one cache point.
    Cached,
}

/// The topmost part of a plan of a class: a node of the class, or a cache point.
#[derive(Debug, Clone, Copy)]
enum Way<'a> {
    /// A node of the class, and the index of the input that contains the cache point; `None` if no
    /// input contains one.
    Node(&'a Node, Option<usize>),
    /// A cache point over the best plan of the class without a cache point.
    Cache,
}

/// The least costs of all classes. `totals` has an entry for each class and optimum that was found.
struct Best<'a> {
    graph: &'a PlanGraph,
    prices: &'a Coefficients,
    cache: &'a CacheCosts,
    at: Option<&'a BTreeSet<ParamId>>,
    stored: &'a dyn Fn(Id) -> Option<u64>,
    totals: HashMap<(Id, Caching), Cost>,
}

impl<'a> Best<'a> {
    fn of(
        graph: &'a PlanGraph,
        prices: &'a Coefficients,
        cache: &'a CacheCosts,
        at: Option<&'a BTreeSet<ParamId>>,
        stored: &'a dyn Fn(Id) -> Option<u64>,
    ) -> Self {
        let mut best = Self {
            graph,
            prices,
            cache,
            at,
            stored,
            totals: HashMap::new(),
        };
        let mut nodes = Vec::new();
        for class in graph.classes() {
            for node in &class.nodes {
                nodes.push((class.id, node, own(graph, prices, class.id, node)));
            }
        }
        best.settle(&nodes, Caching::Each);
        if cache.possible() {
            for class in graph.classes() {
                if let Some(total) = best.total(class.id, Way::Cache, 0) {
                    best.totals.insert((class.id, Caching::Cached), total);
                }
            }
            best.settle(&nodes, Caching::Cached);
        }
        best
    }

    /// Finds the least cost of every class for the optimum `state`, by lowering the costs in
    /// `totals` until no cost can be lowered. Every operator has a positive cost, so the best plan
    /// of a class does not contain that class again.
    fn settle(&mut self, nodes: &[(Id, &'a Node, Cost)], state: Caching) {
        let mut changed = true;
        while changed {
            changed = false;
            for &(class, node, own) in nodes {
                for way in Self::by_node(node, state) {
                    let Some(total) = self.total(class, way, own) else {
                        continue;
                    };
                    let known = self.totals.entry((class, state)).or_insert(Cost::MAX);
                    if total < *known {
                        *known = total;
                        changed = true;
                    }
                }
            }
        }
    }

    fn by_node(node: &Node, state: Caching) -> impl Iterator<Item = Way<'_>> {
        let plain = (state == Caching::Each).then_some(Way::Node(node, None));
        let places = match state {
            Caching::Each => 0,
            Caching::Cached => node.children().len(),
        };
        let held = (0..places).map(move |place| Way::Node(node, Some(place)));
        plain.into_iter().chain(held)
    }

    /// The inputs of `node`, each with the optimum of its class to use: `Cached` for the input with
    /// the index `cached`, which contains the cache point, and `Each` for all other inputs.
    fn inputs(&self, node: &Node, cached: Option<usize>) -> Vec<(Id, Caching)> {
        let inputs = node.children().iter().enumerate();
        let state = |place| {
            if cached == Some(place) {
                Caching::Cached
            } else {
                Caching::Each
            }
        };
        inputs
            .map(|(place, &id)| (self.graph.find(id), state(place)))
            .collect()
    }

    /// True if the user named no operator in CACHE AT, or named an operator that is the topmost
    /// operator of a plan of `class`.
    fn may_be_cached_at(&self, class: Id) -> bool {
        let Some(at) = self.at else { return true };
        self.graph[class].nodes.iter().any(|node| match node {
            Node::Op([param, _, _]) => {
                param_of(self.graph, *param).is_some_and(|param| at.contains(&param))
            }
            _ => false,
        })
    }

    /// Cost of the plan of `class` whose topmost part is `way`; `None` if there is no such plan.
    /// `own` is the cost per epoch of the node in `way` without its inputs.
    fn total(&self, class: Id, way: Way<'_>, own: Cost) -> Option<Cost> {
        let epochs = Cost::from(self.cache.epochs);
        match way {
            Way::Cache => {
                let fact = plan_fact(self.graph, class)?;
                if !self.may_be_cached_at(class) {
                    return None;
                }
                self.cache.refusal(&self.graph.analysis.arena, fact).ok()?;
                let stored = (self.stored)(class)?;
                let once = self.totals.get(&(class, Caching::Each))?;
                Some(self.cache.total(*once, fact, stored))
            }
            Way::Node(node, cached) => {
                let own = match cached {
                    Some(_) => own.saturating_mul(epochs),
                    None => own,
                };
                let mut inputs = self.inputs(node, cached).into_iter();
                inputs.try_fold(own, |sum, (id, state)| {
                    let input = *self.totals.get(&(id, state))?;
                    let input = match (cached, state) {
                        (Some(_), Caching::Each) => input.saturating_mul(epochs),
                        _ => input,
                    };
                    Some(sum.saturating_add(input))
                })
            }
        }
    }
}

struct Chooser<'a> {
    best: &'a Best<'a>,
    /// For each class and optimum, the topmost part of the chosen plan, and the text of that plan.
    chosen: HashMap<(Id, Caching), (Way<'a>, String)>,
    /// The class whose rows are cached, and the cost of computing one of these rows.
    cached: Option<(Id, Cost)>,
}

impl<'a> Chooser<'a> {
    /// Chooses, among the cheapest plans of a class for the optimum `state`, the plan whose text
    /// sorts first. Returns this text.
    fn choose(&mut self, class: Id, state: Caching) -> Option<String> {
        if let Some((_, text)) = self.chosen.get(&(class, state)) {
            return Some(text.clone());
        }
        let best = self.best;
        let least = *best.totals.get(&(class, state))?;
        let mut first: Option<(String, Way<'a>)> = None;
        let cache = (state == Caching::Cached).then_some((Way::Cache, 0));
        let nodes = best.graph[class].nodes.iter().flat_map(|node| {
            let own = own(best.graph, best.prices, class, node);
            Best::by_node(node, state).map(move |way| (way, own))
        });
        for (way, own) in cache.into_iter().chain(nodes) {
            if best.total(class, way, own) != Some(least) {
                continue;
            }
            let text = self.text(class, way)?;
            if first.as_ref().is_none_or(|(known, _)| text < *known) {
                first = Some((text, way));
            }
        }
        let (text, way) = first?;
        self.chosen.insert((class, state), (way, text.clone()));
        Some(text)
    }

    fn text(&mut self, class: Id, way: Way<'a>) -> Option<String> {
        let (node, cached) = match way {
            Way::Cache => return Some(format!("(cache {})", self.choose(class, Caching::Each)?)),
            Way::Node(node, cached) => (node, cached),
        };
        let arena = &self.best.graph.analysis.arena;
        let name = match node {
            Node::Param(param) => return Some(arena.spec(*param).text.clone()),
            // The text of a plan is unique without the slots that an operator passes on, since
            // these slots follow from the operators above.
            Node::LiveSlots(_) => return Some(String::new()),
            Node::Scan(scan) => {
                let spec = arena.scan(*scan);
                return Some(format!("scan {} {:?}", spec.occurrence, spec.columns));
            }
            Node::Op(_) => "op",
            Node::Cat(_) => "cat",
            Node::Mix(_) => "mix",
        };
        let mut text = format!("({name}");
        for (id, state) in self.best.inputs(node, cached) {
            text += " ";
            text += &self.choose(id, state)?;
        }
        Some(text + ")")
    }

    fn build(&mut self, class: Id, state: Caching) -> Option<OperatorTree> {
        self.choose(class, state)?;
        let (way, _) = self.chosen.get(&(class, state))?;
        let (node, cached) = match *way {
            Way::Cache => {
                let once = *self.best.totals.get(&(class, Caching::Each))?;
                let rows = plan_fact(self.best.graph, class)?.rows.number();
                self.cached = Some((class, once / rows.max(1)));
                return Some(OperatorTree::Cache(Box::new(
                    self.build(class, Caching::Each)?,
                )));
            }
            Way::Node(node, cached) => (node, cached),
        };
        let inputs = self.best.inputs(node, cached);
        match node {
            Node::Param(_) | Node::LiveSlots(_) => None,
            Node::Scan(scan) => Some(OperatorTree::Scan(*scan)),
            Node::Op([param, _, _]) => {
                let param = param_of(self.best.graph, *param)?;
                let (id, state) = inputs[2];
                Some(self.build(id, state)?.then(param))
            }
            Node::Mix(_) => {
                let arms = inputs.into_iter().map(|(id, state)| self.build(id, state));
                Some(OperatorTree::Mix(arms.collect::<Option<_>>()?))
            }
            Node::Cat(_) => {
                let [(a, of_a), (b, of_b)] = [inputs[0], inputs[1]];
                let both = [self.build(a, of_a)?, self.build(b, of_b)?];
                Some(OperatorTree::Cat(Box::new(both)))
            }
        }
    }
}
