//! Estimates of bytes per row, and of the fraction of rows that a predicate keeps.

use datafusion::logical_expr::{Expr, Operator};
use forebay_udfs::TensorType;
use forebay_udfs::facts::Algebra;
use forebay_udfs::width::DECODED_PER_ENCODED;

use super::arena::Arena;
use super::log2::Log2;
use super::plan_fact::PlanFact;
use super::spec::OpSpec;

/// Bytes per row in the slots that an operator reads.
pub(super) fn read_bytes(spec: &OpSpec, input: &PlanFact) -> Log2 {
    let mut read = spec.reads.iter().filter_map(|slot| input.columns.get(slot));
    match (read.next(), read.next()) {
        // If the operator reads only one slot, the logarithm of this slot's size is returned
        // unchanged. A conversion to a number and back would round the logarithm.
        (Some(only), None) => only.bytes,
        _ => {
            let bytes = input.bytes(spec.reads.iter());
            Log2::of(u64::try_from(bytes).unwrap_or(u64::MAX))
        }
    }
}

/// Estimated bytes of the image that an operator yields, if the image's height and width are
/// unknown: the bytes of the input image, times the ratio of output to input bytes per pixel.
/// Products of such ratios do not depend on the order of operators.
pub(super) fn image_bytes(
    arena: &Arena,
    spec: &OpSpec,
    input: &PlanFact,
    made: &TensorType,
) -> Log2 {
    let pixel = |tensor: &TensorType| Log2::of((tensor.channels * tensor.dtype.bytes()) as u64);
    let read = read_bytes(spec, input);
    let source = spec.reads.iter().find_map(|slot| {
        let column = input.columns.get(slot)?;
        arena.tensor(column.data_type)
    });
    let per_pixel = match source {
        Some(source) => pixel(&source),
        None if spec.algebra == Algebra::Decode => {
            /// Bytes per pixel of the decoded images to which [`DECODED_PER_ENCODED`] refers.
            const COLORS: u64 = 3;
            let decoded = Log2::of(DECODED_PER_ENCODED);
            return read
                .times(decoded)
                .times(pixel(made))
                .over(Log2::of(COLORS));
        }
        None => return read,
    };
    read.times(pixel(made)).over(per_pixel)
}

/// The fraction of rows that a predicate is assumed to keep if this was not measured. The fractions
/// are the estimates of System R (Selinger et al., SIGMOD 1979, table 1).
pub(crate) fn selectivity(predicate: &Expr) -> Log2 {
    /// Fraction of rows that pass an equality or IS NULL: 1/10.
    const EQUAL: Log2 = Log2(-3402);
    /// Fraction of rows that pass a comparison: 1/3.
    const RANGE: Log2 = Log2(-1623);
    /// Fraction of rows that pass a BETWEEN: 1/4.
    const BETWEEN: Log2 = Log2(-2048);
    /// Fraction of rows that pass any other predicate: 1/2.
    const OTHER: Log2 = Log2(-1024);
    match predicate {
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::Eq => EQUAL,
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => RANGE,
            Operator::And => selectivity(&binary.left).times(selectivity(&binary.right)),
            Operator::NotEq => Log2(-156),
            _ => OTHER,
        },
        Expr::Between(_) => BETWEEN,
        Expr::IsNotNull(_) => Log2(-156),
        Expr::IsNull(_) => EQUAL,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::logical_expr::expr::ScalarFunction;
    use datafusion::logical_expr::lit;

    use super::*;
    use crate::optimizer::facts::op_fact;
    use crate::optimizer::plan_fact::Column;
    use crate::optimizer::profile::Profile;
    use crate::optimizer::slots::SlotSet;
    use crate::rows::slot as column;

    /// The estimated bytes of the image that `calls` yield, applied in order to a file of 1000
    /// bytes.
    fn after(calls: &[(&str, &[Expr])]) -> Log2 {
        let mut arena = Arena::default();
        let slot = arena.slot("x");
        let data_type = arena.type_of(&Field::new("x", DataType::Binary, true));
        let file = Column {
            data_type,
            bytes: Log2::of(1000),
            stored: Some(slot),
        };
        let mut fact = PlanFact {
            columns: [(slot, file)].into_iter().collect(),
            rows: Log2::of(1),
            pool: Log2::of(1),
            draws: None,
            unaddressed: None,
        };
        let functions = forebay_udfs::functions();
        for (name, constants) in calls {
            let func = functions.iter().find(|f| f.name() == *name).unwrap();
            let mut args = vec![column("x")];
            args.extend_from_slice(constants);
            let func = std::sync::Arc::clone(func);
            let call = Expr::ScalarFunction(ScalarFunction { func, args });
            let param = arena.row(slot, call, false);
            fact = op_fact(
                &mut arena,
                &Profile::default(),
                param,
                &SlotSet::from_iter([slot]),
                &fact,
            )
            .unwrap();
        }
        fact.columns.get(slot).unwrap().bytes
    }

    #[test]
    fn bytes_of_images_follow_their_pixels() {
        let decode: (&str, &[Expr]) = ("decode_image", &[]);
        let float: (&str, &[Expr]) = ("to_float", &[]);
        let gray: (&str, &[Expr]) = ("grayscale", &[]);
        let decoded = after(&[decode]);
        assert_eq!(decoded, Log2::of(1000).times(Log2::of(DECODED_PER_ENCODED)));
        assert_eq!(after(&[decode, float]), decoded.times(Log2::of(4)));
        let single = decoded.over(Log2::of(3));
        assert_eq!(after(&[decode, gray]), single);
        assert_eq!(after(&[decode, float, gray]), after(&[decode, gray, float]));
        let half = [lit("f16")];
        let halves = after(&[decode, ("to_float", &half), gray]);
        assert_eq!(halves, single.times(Log2::of(2)));
        let luma = [lit("luma")];
        assert_eq!(after(&[("decode_image", &luma)]), single);
    }
}
