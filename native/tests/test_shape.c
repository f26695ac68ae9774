/* What values surely are: a small program, texts that are cut anywhere, and programs that are
 * damaged. Which schemas become which programs: tests/workers/schemas/test_shapes.py. */
#include "format/shape.h"

#include "codec_testing.h"

#define KINDS 127u /* all */

/* {"a": whole numbers from 1, "b": ["x", ...]}; "a" has to be there, and there is no other. */
static size_t program_of(uint8_t *out)
{
    const struct shape_head head = {.nodes = 6, .choices = 1, .members = 2, .refs = 2, .bytes = 3,
                                    .root = 2};
    const uint32_t most = UINT32_MAX;
    const struct shape_node nodes[] = {
        {.flags = KINDS | SHAPE_OWN, .items_most = most, .chars_most = most},
        {.flags = SHAPE_OWN},
        {.flags = SHAPE_OBJECT | SHAPE_OWN, .members = 2, .required = 1, .others = 1},
        {.flags = SHAPE_INTEGER | SHAPE_OWN | SHAPE_BOUND, .least = 1, .most = 9, .step = 2},
        {.flags = SHAPE_ARRAY | SHAPE_OWN, .items = 5, .items_most = 3},
        {.flags = SHAPE_STRING | SHAPE_OWN, .chars_most = most, .choices = 1, .all = 1,
         .any_at = 1, .any = 1},
    };
    const struct shape_choice choices[] = {{.kind = SHAPE_STRING, .at = 2, .len = 1}};
    const struct shape_member members[] = {{0, 1, 3, 0}, {1, 1, 4, SHAPE_NONE}};
    const uint32_t refs[] = {0, 0};
    uint8_t *at = out;
    memcpy(at, &head, sizeof head);
    memcpy(at += sizeof head, nodes, sizeof nodes);
    memcpy(at += sizeof nodes, choices, sizeof choices);
    memcpy(at += sizeof choices, members, sizeof members);
    memcpy(at += sizeof members, refs, sizeof refs);
    memcpy(at += sizeof refs, "abx", 3);
    return (size_t)(at + 3 - out);
}

static const char *const right[] = {
    "{\"a\":8}", " { \"a\" : 2 , \"b\" : [ ] } ", "{\"b\":[\"x\",\"x\",\"x\"],\"a\":4}",
    "{\"a\":2,\"a\":4}",
};
static const char *const unsure[] = {
    "", "{}", "{\"a\":0}", "{\"a\":10}", "{\"a\":3}", "{\"a\":2.0}", "{\"a\":2,\"c\":1}",
    "{\"a\":2,\"b\":[\"y\"]}", "{\"a\":2,\"b\":[\"x\",\"x\",\"x\",\"x\"]}", "{\"a\":2}}",
    "{\"a\":2,}", "{\"\\u0061\":2}", "{\"b\":[]}", "{\"b\":[],\"b\":[]}", "[]", "nul",
};

static bool holds(const struct shape *shape, const char *text, size_t len)
{
    uint8_t *copy = exact_copy(text, len);
    const bool held = shape_holds(shape, copy, len);
    free(copy);
    return held;
}

static void test_values(const struct shape *shape)
{
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        const size_t len = strlen(right[i]);
        CHECK(holds(shape, right[i], len));
        const size_t closed = (size_t)(strrchr(right[i], '}') - right[i]);
        for (size_t cut = 0; cut <= closed; cut++)
            CHECK(!holds(shape, right[i], cut));
    }
    for (size_t i = 0; i < sizeof unsure / sizeof *unsure; i++)
        CHECK(!holds(shape, unsure[i], strlen(unsure[i])));
}

/* Whatever a program says, nothing is read that is not there, and it comes to an end. */
static void test_damaged_programs(const uint8_t *program, size_t len)
{
    uint64_t seed = 7;
    uint32_t taken = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        const size_t cut = round % 5 == 0 ? random_next(&seed) % (len + 1) : len;
        uint8_t *copy = exact_copy(program, cut);
        for (uint64_t times = random_next(&seed) % 4; cut > 0 && times > 0; times--)
            copy[random_next(&seed) % cut] = (uint8_t)random_next(&seed);
        struct shape *shape = shape_new(copy, cut);
        free(copy);
        if (shape == NULL)
            continue;
        taken++;
        for (size_t i = 0; i < sizeof right / sizeof *right; i++)
            holds(shape, right[i], strlen(right[i]));
        shape_free(shape);
    }
    CHECK(taken > 1000);
}

/* Nodes of nothing but choices between the next one and itself: what is tried has an end. */
static void test_choices_of_choices(void)
{
    enum { NODES = 60, REFS = 2 };
    uint8_t bytes[sizeof(struct shape_head) + NODES * sizeof(struct shape_node) +
                  NODES * REFS * sizeof(uint32_t)];
    struct shape_head head = {.nodes = NODES, .refs = NODES * REFS};
    struct shape_node nodes[NODES] = {{0}};
    uint32_t refs[NODES * REFS];
    for (uint32_t i = 0; i < NODES; i++) {
        nodes[i].flags = i == NODES - 1 ? SHAPE_OWN : 0;
        nodes[i].any_at = i * REFS;
        nodes[i].any = REFS;
        refs[i * REFS] = refs[i * REFS + 1] = i + 1 < NODES ? i + 1 : 0;
    }
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, nodes, sizeof nodes);
    memcpy(bytes + sizeof head + sizeof nodes, refs, sizeof refs);
    struct shape *shape = shape_new(bytes, sizeof bytes);
    CHECK(shape != NULL && !holds(shape, "1", 1));
    shape_free(shape);
}

int main(void)
{
    uint8_t program[2048];
    const size_t len = program_of(program);
    struct shape *shape = shape_new(program, len);
    CHECK(shape != NULL);
    test_values(shape);
    shape_free(shape);
    test_damaged_programs(program, len);
    test_choices_of_choices();
    uint8_t *large = exact_copy(program, len);
    CHECK(shape_new(large, len - 1) == NULL);
    free(large);
    return 0;
}
