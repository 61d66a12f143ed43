//! Extracts the cheapest plan of a class, with at most one cache point.
//!
//! Row counts and bytes belong to classes, so a node's own cost is the same in every plan, and the
//! best plan of a class is its best node over the best plans of the node's inputs. With a cache,
//! each class has two optima: the cost per epoch with nothing below cached (`each`), and the cost
//! of all epochs with one point below cached (`cached`). Order and cache point are thus chosen
//! together: a cached plan may have another order than the best plan without a cache.
//!
//! Among plans of equal cost, the text of the plan decides, never the order in which the graph was
//! built.

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

/// The cost of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Priced {
    /// Cost of all epochs of the plan together.
    pub total: Cost,
    /// The cached class, if there is one.
    pub cached_at: Option<Id>,
    /// Cost of computing one row of the cached class.
    pub cached_row: Cost,
}

/// Returns the cheapest plan of `root` over all epochs, cached at one point if that pays. If `at`
/// names operators, the plan is cached right above one of them, if that is legal. `stored` returns
/// the number of a class's rows that are stored already, or `None` if they must not be cached.
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
    // A saturated sum no longer exceeds each of its terms, so a plan could contain itself.
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

/// The two optima of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Caching {
    /// The least cost of one epoch with nothing cached.
    Each,
    /// The least cost of all epochs with one point cached.
    Cached,
}

/// A way to obtain the plan of a class.
#[derive(Debug, Clone, Copy)]
enum Way<'a> {
    /// By a node. With an index, the node's input with this index contains the cache.
    Node(&'a Node, Option<usize>),
    /// By caching the best plan of the class.
    Cache,
}

/// The least costs of all classes.
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

    /// Lowers the totals of all classes in the state `state` until no total can be lowered. Every
    /// node has a positive cost, so no best plan contains itself.
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

    /// The inputs of a node, each with the optimum that the node needs: the input with the index
    /// `cached` contains the cache.
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

    /// True if the user named no operator to cache, or named one at the top of this class.
    fn may_be_cached_at(&self, class: Id) -> bool {
        let Some(at) = self.at else { return true };
        self.graph[class].nodes.iter().any(|node| match node {
            Node::Op([param, _, _]) => {
                param_of(self.graph, *param).is_some_and(|param| at.contains(&param))
            }
            _ => false,
        })
    }

    /// Total cost of a class whose plan is obtained in the given way, or `None` if that is not
    /// possible; `own` is the node's own cost per epoch.
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
    /// For each class, the chosen way to obtain its plan, and the text of this plan.
    chosen: HashMap<(Id, Caching), (Way<'a>, String)>,
    /// The cached class, and the cost of computing one of the class's rows.
    cached: Option<(Id, Cost)>,
}

impl<'a> Chooser<'a> {
    /// Chooses the plan of a class: among the cheapest ways, the one whose text sorts first.
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
            // The slots passed on follow from the operators above, so they need no text.
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
