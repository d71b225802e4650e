"""The plots of the stories, and how a story may begin and end.

A field in braces is a word list of ``stories.py`` or belongs to a character: ``{hero}`` is the
hero's name, ``{kind}`` and ``{adj}`` what he or she is, ``{he}``, ``{him}`` and ``{his}`` the
pronoun; the friend's fields are ``{friend}`` and the same with an f in front.
"""

from __future__ import annotations

OPENINGS = (
    "Once upon a time, there was a {adj} {kind} named {hero}. {He} lived in {place}.",
    "Once upon a time, a {adj} {kind} named {hero} lived in {place}.",
    "Once upon a time, in {place}, there lived a {adj} {kind}. {His} name was {hero}.",
    "In {place} there lived a {adj} {kind} named {hero}.",
    "There once was a {adj} {kind} called {hero} who lived in {place}.",
)
FRIENDS = (
    "{His} best friend was a {fadj} {fkind} named {friend}.",
    "{hero} had a friend, a {fadj} {fkind} named {friend}.",
    "Next door lived a {fadj} {fkind} named {friend}.",
)
ENDINGS = (
    "From that day on, {hero} and {friend} were the best of friends.",
    "{hero} smiled all the way home. It had been a very good day.",
    'That night, {hero} whispered, "Thank you, {friend}," and fell asleep.',
    "And every {time}, {hero} and {friend} met again under the same tree.",
    "They laughed and danced until the sun went down.",
    "{hero} never forgot what {friend} had done for {him}.",
)

Beats = tuple[tuple[str, ...], ...]
PLOTS: dict[str, tuple[Beats, Beats]] = {
    "lost": (
        (
            (
                "{hero} had a {treasure} that {he} loved more than anything.",
                "{hero} carried a {treasure} wherever {he} went.",
            ),
            (
                "One {weather}, the {treasure} was gone.",
                "But one {weather}, {hero} could not find the {treasure}.",
            ),
            (
                "{hero} looked in the kitchen and under the bed, but it was not there.",
                "{He} looked here and {he} looked there, and {he} began to cry.",
            ),
        ),
        (
            (
                '"What is wrong?" asked {friend}. "I have lost my {treasure}," said {hero}.',
                '{friend} saw {hero} and asked, "Why are you so sad?" "My {treasure} is gone!" '
                "said {hero}.",
            ),
            (
                '"Do not worry," said {friend}. "We will look for it together."',
                '"Let us look together," said {friend}. "Four eyes see more than two."',
            ),
            (
                "They walked slowly along the path. There, {hiding}, was the {treasure}!",
                "They looked everywhere. At last {friend} found the {treasure} {hiding}.",
            ),
            (
                '"Thank you, {friend}!" said {hero}, and {he} hugged {fhim}.',
                "{hero} jumped for joy and hugged {friend}.",
            ),
        ),
    ),
    "learn": (
        (
            (
                "More than anything, {hero} wanted to {skill}.",
                "{hero} had one big dream. {He} wanted to learn to {skill}.",
            ),
            (
                "One {weather}, {he} tried to {skill} all alone, but it did not go well.",
                "{He} tried and tried to {skill}, but every time it went wrong.",
            ),
            ('"I will never learn to {skill}," said {hero}.', '"It is too hard," sighed {hero}.'),
        ),
        (
            (
                '{friend} sat down beside {him}. "I can {skill}," said {friend}. "I will show '
                'you."',
                '"I could not {skill} at first either," said {friend}. "Let me help you."',
            ),
            (
                "So they practised a little every day.",
                "Every morning they went outside and tried again.",
            ),
            (
                "After a week, {hero} could {skill} a little. After a month, {he} could {skill} "
                "very well.",
                "Slowly, slowly, it became easier, and one day {hero} could {skill} better than "
                "anyone.",
            ),
            (
                '"Look at me!" cried {hero}. {friend} clapped {fhis} hands.',
                '"You did it!" said {friend}. {hero} was very proud.',
            ),
        ),
    ),
    "fear": (
        (
            (
                "There was only one thing that {hero} did not like. {He} was afraid of {fear}.",
                "{hero} was afraid of {fear}, but {he} never told anyone.",
            ),
            (
                "One {weather}, {friend} did not come home.",
                "One {weather}, {hero} heard {friend} calling for help.",
            ),
            (
                '"I must find {friend}," thought {hero}, "but I am so afraid of {fear}."',
                "{hero} thought of {fear} and {his} knees began to shake.",
            ),
        ),
        (
            (
                "But {he} took a deep breath and went out of the door.",
                "Then {he} thought of {his} friend, and {he} was brave.",
            ),
            (
                "{He} walked and walked, and at last {he} found {friend}, {trap}.",
                "Soon {he} saw {friend}, who was {trap}.",
            ),
            (
                '"You came!" said {friend}. "I knew that you would come."',
                '"Do not be afraid," said {hero}. "I am here now."',
            ),
            (
                "{hero} helped {friend} and they went home together. {hero} was not afraid of "
                "{fear} any more.",
                'On the way home, {friend} said, "You are the bravest {kind} I know." And {hero} '
                "was not afraid of {fear} any more.",
            ),
        ),
    ),
    "rescue": (
        (
            (
                "One {weather}, {hero} went for a walk.",
                "One {weather}, {hero} was playing outside.",
            ),
            (
                'Suddenly {he} heard a small voice. "Help! Help!"',
                "Then {he} heard someone crying.",
            ),
            (
                "It was {friend}. The poor {fkind} was {trap}!",
                "{hero} ran to look, and there was {friend}, {trap}!",
            ),
        ),
        (
            (
                '"Hold on!" said {hero}. "I will get you out."',
                '"I am coming, {friend}!" cried {hero}.',
            ),
            (
                "{He} pulled as hard as {he} could, but {friend} did not move.",
                "{hero} was too small to do it alone, so {he} began to think.",
            ),
            (
                "Then {hero} had an idea. {He} ran home and came back with {tool}.",
                "{He} looked around and found {tool}. That was just what {he} needed.",
            ),
            (
                "With {tool}, {he} pulled once, twice, three times, and {friend} was free!",
                '{friend} held on tight to {tool}. Pop! {Fhe} was free. "You saved me!" said '
                "{friend}.",
            ),
        ),
    ),
    "share": (
        (
            (
                "One {weather}, {hero} found {food} on the path.",
                "One {weather}, {his} mother gave {hero} {food}.",
            ),
            (
                '"Mmm," said {hero}. "This is all for me."',
                "{hero} was very hungry and sat down to eat.",
            ),
            (
                "Just then {friend} came by. {Fhe} looked thin and tired.",
                "Then {he} saw {friend}, who had nothing to eat at all.",
            ),
        ),
        (
            (
                '"I have not eaten all day," said {friend}.',
                '"Is that {food}?" asked {friend}. "It smells so good."',
            ),
            (
                "{hero} looked at {food} and then at {friend}. {He} thought for a while.",
                "At first {hero} wanted to hide it. But then {he} felt sorry.",
            ),
            (
                '"Come and sit with me," said {hero}. "There is enough for two."',
                '"We will share," said {hero}, and {he} gave half to {friend}.',
            ),
            (
                "They ate together, and it tasted better than ever.",
                '{friend} ate and smiled. "You are very kind, {hero}," {fhe} said.',
            ),
        ),
    ),
    "build": (
        (
            (
                "One {weather}, {hero} wanted to build {build}.",
                '"I am going to build {build}," said {hero} one {weather}.',
            ),
            (
                "{He} worked all day with wood and rope.",
                "{He} took a hammer and some nails and began to work.",
            ),
            (
                "But when it was done, it fell apart with a loud crash.",
                "But the wind blew, and everything fell down.",
            ),
        ),
        (
            (
                '"Oh no!" cried {hero}. {friend} heard it and came to see.',
                '{friend} came running. "What happened?" {fhe} asked.',
            ),
            (
                '"I wanted to build {build}," said {hero}, "but I cannot do it."',
                '"I will never build {build}," said {hero} with a tear in {his} eye.',
            ),
            (
                '"You hold the wood and I will tie the rope," said {friend}.',
                '"Two can do what one cannot," said {friend}.',
            ),
            (
                "They worked side by side, and before dark they had built {build}. It was strong "
                "and beautiful.",
                'So they started again, slowly and with care. "We did it!" they cried, and it did '
                "not fall down.",
            ),
        ),
    ),
    "quarrel": (
        (
            (
                "One {weather}, {hero} and {friend} found a {treasure}.",
                "One {weather}, there was a {treasure} on the grass. {hero} and {friend} saw it "
                "at the same time.",
            ),
            ('"It is mine!" said {hero}. "No, it is mine!" said {friend}.',),
            (
                "They pulled and pulled until the {treasure} broke in two.",
                "{hero} was so angry that {he} took the {treasure} and ran away.",
            ),
        ),
        (
            (
                "At home, {hero} felt very sad. It was no fun to play alone.",
                "That night {hero} could not sleep. {He} missed {friend}.",
            ),
            (
                "In the morning {he} went to see {friend}.",
                "So {he} walked to the house of {friend} and knocked on the door.",
            ),
            (
                '"I am sorry," said {hero}. "You are more important than a {treasure}."',
                '"I was not nice to you," said {hero}. "I am sorry."',
            ),
            (
                '"I am sorry too," said {friend}, and they played together all day.',
                '{friend} smiled. "I am sorry too," {fhe} said. "Let us share the {treasure}."',
            ),
        ),
    ),
    "gift": (
        (
            (
                "One {weather}, it was the birthday of {friend}.",
                '"Tomorrow is my birthday," said {friend} one {weather}.',
            ),
            (
                "{hero} wanted to give {fhim} something nice, but {he} had no money.",
                "{hero} looked in {his} pocket. It was empty. {He} could not buy a present.",
            ),
            (
                '"What can I do?" thought {hero}. Then {he} had an idea.',
                "{He} sat by the window and thought for a long time.",
            ),
        ),
        (
            (
                "{He} stayed up late and made {gift}.",
                "All day long {he} worked in secret. {He} was making {gift}.",
            ),
            (
                "When the party began, {hero} was a little shy.",
                "The others brought big boxes, and {hero} felt very small.",
            ),
            (
                '"This is for you," said {hero}. "I made it myself." It was {gift}.',
                '"I have only {gift}," said {hero} softly.',
            ),
            (
                '{friend} was so happy that {fhe} almost cried. "It is the best present of all," '
                "{fhe} said.",
                '"You made this for me?" asked {friend}. "I love it!" And {fhe} hugged {hero}.',
            ),
        ),
    ),
    "wander": (
        (
            (
                "One {weather}, {hero} followed a butterfly into the woods.",
                "One {weather}, {hero} walked farther than {he} had ever walked before.",
            ),
            (
                "When {he} looked around, {he} did not know where {he} was.",
                "The path was gone, and all the trees looked the same.",
            ),
            (
                'It grew dark. "I want to go home," said {hero}.',
                "The sun went down and {hero} was all alone.",
            ),
        ),
        (
            (
                "At home, {friend} saw that the bed of {hero} was empty, and {fhe} went out to "
                "look.",
                '"Where is {hero}?" thought {friend}, and {fhe} set out at once.',
            ),
            (
                "Then {hero} noticed {sign}. {He} followed it, step by step.",
                "{hero} sat very still. Then {he} noticed {sign} and began to walk.",
            ),
            (
                "Near the river someone called {his} name. It was {friend}!",
                '"{hero}! {hero}!" called a voice. It was {friend}.',
            ),
            (
                '"I followed {sign}," said {hero}. "That was very clever," said {friend}, and '
                "they walked home hand in hand.",
                '"I am so glad that I found you," said {friend}, and {fhe} took {hero} home.',
            ),
        ),
    ),
    "garden": (
        (
            (
                "One {weather}, {hero} found a {seed} seed and put it in the ground.",
                'One {weather}, {friend} gave {hero} a {seed} seed. "Put it in the ground and '
                'wait," {fhe} said.',
            ),
            (
                "{He} gave it water every day, but nothing happened.",
                "{He} looked at it in the morning and in the evening, but there was nothing to "
                "see.",
            ),
            (
                '"My {seed} will never grow," said {hero}.',
                '"Why is it so slow?" asked {hero}. {He} did not like to wait.',
            ),
        ),
        (
            (
                '"Be patient," said {friend}. "Good things take time."',
                '{friend} laughed. "You cannot hurry a {seed}," {fhe} said.',
            ),
            (
                "So {hero} waited. It rained, and then the sun came out.",
                "Days went by, and then weeks. {hero} did not give up.",
            ),
            (
                "One morning there was a tiny green leaf!",
                "Then one day something green came out of the ground.",
            ),
            (
                "It grew and grew, until it was the finest {seed} in the land.",
                'Soon the {seed} was taller than {hero}. "Look, {friend}!" {he} called. "It was '
                'worth the wait!"',
            ),
        ),
    ),
}
