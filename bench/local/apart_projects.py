"""The written projects of the questions kept apart: a web service in TypeScript, a C program, a Python package."""

from __future__ import annotations

from bench.local.projects import write_project

PARCELMAP = write_project(
    "parcelmap",
    {
        "README.md": (
            "# Parcelmap\n\nParcelmap is an HTTP service that tells couriers which streets belong to their round.\n\n"
            "Start it with `npm start`. The rounds are kept in PostgreSQL.\n\nLicence: ISC\n"
        ),
        "package.json": (
            '{\n  "name": "parcelmap",\n  "version": "0.7.3",\n  "license": "ISC",\n  "scripts": {\n'
            '    "start": "node dist/server.js",\n    "build": "tsc",\n    "test": "vitest run"\n  },\n'
            '  "dependencies": {\n    "fastify": "^4.26.0",\n    "pg": "^8.11.3"\n  },\n'
            '  "devDependencies": {\n    "typescript": "^5.4.2",\n    "vitest": "^1.3.1"\n  }\n}\n'
        ),
        "tsconfig.json": '{\n  "compilerOptions": {\n    "target": "ES2022",\n    "outDir": "dist"\n  }\n}\n',
        "Dockerfile": 'FROM node:20-alpine\nWORKDIR /app\nCOPY . .\nRUN npm ci\nEXPOSE 4180\nCMD ["npm", "start"]\n',
        "docs/deploy.md": (
            "# Deploying\n\nThe image is built on every tag. Set `DATABASE_URL` before the first start.\n"
            "The health check is at `/healthz` and must answer within 2 seconds.\n"
        ),
        "src/server.ts": (
            "import Fastify from 'fastify';\nimport { parcelRoutes } from './routes/parcels';\n"
            "import { healthRoutes } from './routes/health';\n\nconst PORT = 4180;\n\n"
            "export function buildServer() {\n  const app = Fastify({ logger: true });\n"
            "  app.register(parcelRoutes);\n  app.register(healthRoutes);\n  return app;\n}\n\n"
            "buildServer().listen({ port: PORT });\n"
        ),
        "src/routes/parcels.ts": (
            "import { getPool } from '../db/pool';\nimport { distanceInMetres } from '../util/geo';\n\n"
            "// FIXME: a round without streets answers 500\nexport async function parcelRoutes(app) {\n"
            "  app.get('/rounds/:id', async (request) => findRound(request.params.id));\n}\n\n"
            "async function findRound(id) {\n  const pool = getPool();\n"
            "  return pool.query('select * from rounds where id = $1', [id]);\n}\n\n"
            "export function nearest(streets, place) {\n"
            "  return streets.sort((a, b) => distanceInMetres(a, place) - distanceInMetres(b, place))[0];\n}\n"
        ),
        "src/routes/health.ts": (
            "export async function healthRoutes(app) {\n  app.get('/healthz', async () => ({ ok: true }));\n}\n"
        ),
        "src/db/pool.ts": (
            "import { Pool } from 'pg';\n\nconst MAX_CONNECTIONS = 12;\nlet pool;\n\n"
            "export function getPool() {\n  pool ??= new Pool({ max: MAX_CONNECTIONS });\n  return pool;\n}\n"
        ),
        "src/util/geo.ts": (
            "const EARTH_RADIUS = 6371000;\n\n// The distance along the great circle, by the haversine formula.\n"
            "export function distanceInMetres(a, b) {\n  const dLat = toRadians(b.lat - a.lat);\n"
            "  const dLon = toRadians(b.lon - a.lon);\n"
            "  const h = Math.sin(dLat / 2) ** 2 + Math.cos(a.lat) * Math.sin(dLon / 2) ** 2;\n"
            "  return 2 * EARTH_RADIUS * Math.asin(Math.sqrt(h));\n}\n\n"
            "export function toRadians(degrees) {\n  return (degrees * Math.PI) / 180;\n}\n"
        ),
        "test/geo.test.ts": (
            "import { test, expect } from 'vitest';\nimport { toRadians } from '../src/util/geo';\n\n"
            "test('half a circle', () => expect(toRadians(180)).toBeCloseTo(Math.PI));\n"
        ),
        "test/parcels.test.ts": (
            "import { test, expect } from 'vitest';\nimport { nearest } from '../src/routes/parcels';\n\n"
            "test('the nearest street', () => "
            "expect(nearest([{ lat: 1, lon: 1 }], { lat: 0, lon: 0 })).toBeDefined());\n"
            "// FIXME: two streets at the same distance\n"
        ),
    },
)

BREWLOG = write_project(
    "brewlog",
    {
        "README": (
            "brewlog\n=======\n\n"
            "Reads the temperature of a fermenting beer from a one-wire sensor and appends it to a\n"
            "log file. Written in C99, without any library.\n\nBuild: make\nRun:   ./brewlog config/brewlog.conf\n"
        ),
        "CHANGES": (
            "1.3.0  The log is rotated at one megabyte.\n1.2.1  A sensor that is unplugged no longer crashes brewlog.\n"
            "1.2.0  Alarm when it gets too warm.\n1.0.0  First release.\n"
        ),
        "Makefile": (
            "CC = cc\nCFLAGS = -std=c99 -Wall -O2\nOBJECTS = src/main.o src/sensor.o src/log.o\n\n"
            "brewlog: $(OBJECTS)\n\t$(CC) -o brewlog $(OBJECTS)\n\ncheck: tests/test_log\n\t./tests/test_log\n\n"
            "clean:\n\trm -f brewlog $(OBJECTS)\n"
        ),
        "config/brewlog.conf": "interval = 90\nalarm_above = 24.5\nsensor = /dev/w1_0\nlog = /var/log/brew.csv\n",
        "src/main.c": (
            '#include "log.h"\n#include "sensor.h"\n#include <unistd.h>\n\nstatic int interval = 60;\n\n'
            'int main(int argc, char **argv)\n{\n    if (argc < 2)\n        return usage("brewlog CONFIG");\n'
            "    for (;;) {\n        double celsius = sensor_read(argv[1]);\n        log_append(celsius);\n"
            "        sleep(interval);\n    }\n}\n\nint usage(const char *text)\n{\n    log_error(text);\n"
            "    return 2;\n}\n"
        ),
        "src/sensor.h": "#define SENSOR_RETRIES 5\n\ndouble sensor_read(const char *device);\n",
        "src/sensor.c": (
            '#include "sensor.h"\n#include <stdio.h>\n\n/* TODO: Fahrenheit */\n'
            "double sensor_read(const char *device)\n{\n    for (int i = 0; i < SENSOR_RETRIES; i++) {\n"
            '        FILE *file = fopen(device, "r");\n        double value;\n'
            "        if (file && read_value(file, &value))\n"
            "            return value;\n    }\n    return -273.15;\n}\n\n"
            "static int read_value(FILE *file, double *value)\n"
            '{\n    return fscanf(file, "%lf", value) == 1;\n}\n'
        ),
        "src/log.h": (
            "#define LOG_LIMIT 1048576\n\nint log_append(double celsius);\nvoid log_error(const char *text);\n"
            "void log_rotate(void);\n"
        ),
        "src/log.c": (
            '#include "log.h"\n#include <stdio.h>\n#include <time.h>\n\nstatic long written;\n\n'
            "int log_append(double celsius)\n{\n    if (written > LOG_LIMIT)\n        log_rotate();\n"
            '    written += printf("%ld,%.2f\\n", (long)time(NULL), celsius);\n    return 0;\n}\n\n'
            "void log_rotate(void)\n{\n    /* TODO: keep more than one old file */\n"
            '    rename("brew.csv", "brew.csv.1");\n    written = 0;\n}\n\n'
            'void log_error(const char *text)\n{\n    fprintf(stderr, "brewlog: %s\\n", text);\n}\n'
        ),
        "tests/test_log.c": (
            '#include "../src/log.h"\n#include <assert.h>\n\nint main(void)\n{\n    assert(log_append(20.0) == 0);\n'
            "    log_rotate();\n    return 0;\n}\n"
        ),
    },
)

ORCHARD = write_project(
    "orchard",
    {
        "README.rst": (
            "Orchard\n=======\n\nOrchard plans the harvest of fruit farms: which tree is picked when, and by how many\n"
            "pickers. It is a library with a small command.\n\n.. code:: shell\n\n    orchard plan data/trees.csv\n"
        ),
        "LICENSE": "BSD 3-Clause License\n\nCopyright (c) 2024, Orchard Growers\n",
        "CHANGELOG.md": "# Changes\n\n## 3.1.0\n\n- Frost warnings.\n\n## 3.0.0\n\n- Plans are made for weeks.\n",
        "setup.cfg": (
            "[metadata]\nname = orchard\nversion = 3.1.0\nauthor = Lina Okafor\n\n[options]\npython_requires = >=3.10\n"
            "install_requires =\n    rich\n    attrs>=23\n"
        ),
        "orchard/__init__.py": '"""Plans the harvest of fruit farms."""\n',
        "orchard/trees.py": (
            '"""Trees and their fruit."""\n\nfrom attrs import frozen\n\nRIPE_BRIX = 13\n\n\n@frozen\nclass Tree:\n'
            '    """One tree: its kind, its row, and when it blossomed."""\n\n    kind: str\n    row: int\n'
            "    blossom: int\n\n\n"
            "@frozen\nclass Orchard:\n    trees: list[Tree]\n\n    def in_row(self, row):\n"
            "        return [tree for tree in self.trees if tree.row == row]\n\n\n"
            "def is_ripe(brix):\n    return brix >= RIPE_BRIX\n"
        ),
        "orchard/plan.py": (
            '"""The plan of a week."""\n\nfrom orchard.trees import is_ripe\n\nPICKERS_PER_ROW = 4\nDAYS = 6\n\n\n'
            "class WeekPlan:\n    def __init__(self, rows):\n        self.rows = rows\n\n"
            "    def count_pickers(self):\n        return len(self.rows) * PICKERS_PER_ROW\n\n\n"
            "def make_plan(rows, brix):\n    ripe = [row for row in rows if is_ripe(brix[row])]\n"
            "    return WeekPlan(ripe[:DAYS])\n"
        ),
        "orchard/frost.py": (
            '"""Frost warnings."""\n\nFREEZING = -2.2\n\n\ndef warn_of_frost(forecast):\n'
            '    """The nights on which blossoms freeze."""\n'
            "    return [night for night, degrees in forecast if degrees <= FREEZING]\n"
        ),
        "orchard/command.py": (
            "import sys\n\nfrom orchard.plan import make_plan\nfrom orchard.reading import read_trees\n\n\n"
            "def main():\n"
            "    trees = read_trees(sys.argv[2])\n    print(make_plan([tree.row for tree in trees], {}))\n"
        ),
        "orchard/reading.py": (
            "import csv\n\nfrom orchard.trees import Tree\n\nENCODING = 'latin-1'\n\n\ndef read_trees(path):\n"
            "    with open(path, encoding=ENCODING) as file:\n        return [Tree(*row) for row in csv.reader(file)]\n"
        ),
        "tests/test_plan.py": (
            "from orchard.plan import WeekPlan\n\n\ndef test_four_pickers_in_a_row():\n"
            "    assert WeekPlan([1, 2]).count_pickers() == 8\n\n\ndef test_no_rows():\n"
            "    assert WeekPlan([]).count_pickers() == 0\n"
        ),
        "tests/test_trees.py": (
            "from orchard.trees import is_ripe\n\n\ndef test_sour():\n    assert not is_ripe(9)\n\n\n"
            "def test_sweet():\n"
            "    assert is_ripe(15)\n\n\ndef test_just_ripe():\n    assert is_ripe(13)\n"
        ),
        "data/trees.csv": "apple,1,112\napple,1,113\npear,2,104\nplum,3,99\n",
        "docs/guide.md": "# Guide\n\nSugar is measured in brix. Apples below 13 brix stay on the tree.\n",
    },
)
