package entity

import (
	"strings"
	"sync"

	"remora/memory/layer"
)

// phraseSet parses lines of an attribute's name, a colon and phrases separated by commas. It maps phrases to attributes.
func phraseSet(list string) map[string]string {
	all := make(map[string]string)
	for l := range strings.Lines(list) {
		attribute, phrases, _ := strings.Cut(strings.TrimSpace(l), ": ")
		for p := range strings.SplitSeq(phrases, ", ") {
			if p != "" {
				all[p] = attribute
			}
		}
	}
	return all
}

// lexicon holds the words by which users say who somebody is and what something is, in English, German, French and Spanish.
type lexicon struct {
	possessives, determiners, articles, romance, copulas, negations, adverbs, conjunctions, subordinators, relatives, particles, titles map[string]bool
	persons, things                                                                                                                     map[string]bool // kinds of things that have a name
	noNames                                                                                                                             map[string]bool // capitalised words that are not names
	german                                                                                                                              map[string]bool // possessives and copulas of a language where every noun has a capital
	he                                                                                                                                  map[string]bool // pronouns for a person
	me                                                                                                                                  map[string]bool // for the user
	alone                                                                                                                               map[string]bool // begin what the user says without a pronoun
	enumerating                                                                                                                         map[string]bool // conjunctions between the parts of an enumeration
	auxiliaries                                                                                                                         map[string]bool // go with participles
	changes                                                                                                                             map[string]bool // adverbs of what is new
	naming, selfNaming                                                                                                                  map[string]string
	of, ofMe                                                                                                                            map[string]string // attributes of a name, of the user
	participles                                                                                                                         map[string]string // attributes by the end of a German clause
	introducing, ownIntroducing                                                                                                         map[string]bool   // attributes that introduce a name, or "my sister"
	several, withoutObject                                                                                                              map[string]bool   // attributes that can have several values; that need no object
	prepositions, corrections, renames, selves, passives, newNames, germanNewNames, agents                                              map[string]bool
	orders                                                                                                                              map[string]bool // words of texts that instruct the model
}

var lexica = sync.OnceValue(func() *lexicon {
	l := &lexicon{
		possessives: layer.Words("my our mein meine meiner meinem meinen meines unser unsere unserer unserem unseren mon ma mes notre nos mi mis nuestro nuestra nuestros nuestras"),
		german:      layer.Words("mein meine meiner meinem meinen meines unser unsere unserer unserem unseren der die das den dem ein eine einen einem einer ist war"),
		determiners: layer.Words("a an the this that another der die das den dem ein eine einen einem einer le la l' les un une cette ce el los las una este esta"),
		articles:    layer.Words("a an the ein eine un une una le la el der die das"),
		romance:     layer.Words("un une una le la el mon ma notre mi nuestro nuestra"),
		copulas:     layer.Words("is 's was ist war est était es era"),
		negations:   layer.Words("not isn't wasn't doesn't don't hasn't haven't never no longer nicht kein keine mehr ne n' pas plus ya no nunca does do didn't did anymore"),
		adverbs: layer.Words("now also currently actually still just recently really already jetzt auch noch eigentlich gerade inzwischen mittlerweile maintenant aussi " +
			"actuellement toujours ahora también actualmente todavía has have had hat habe ha"),
		conjunctions:  layer.Words("and but because since so while though although und aber weil denn sondern et mais parce car y e pero porque sino if when"),
		subordinators: layer.Words("if suppose imagine pretend unless whether wenn falls ob weil dass obwohl während als si imagine"),
		relatives:     layer.Words("who which that she he qui que quien sie er elle il ella él"),
		particles:     layer.Words("de da do dos du del della di von van der den la le el al bin ibn ter zu"),
		titles:        layer.Words("dr mr mrs ms prof herr frau mme m sr sra señor señora"),
		he:            layer.Words("he she er sie il elle él ella"),
		me:            layer.Words("i we ich wir je j' nous yo"),
		alone:         layer.Words("call nenn appelle vivo vivimos trabajo estudio vengo soy me nos"),
		enumerating:   layer.Words("and und et y e"),
		auxiliaries:   layer.Words("bin sind ist"),
		changes:       layer.Words("now jetzt inzwischen mittlerweile maintenant ahora"),
		persons: layer.Words(`wife husband daughter son mother mom mum father dad sister brother girlfriend boyfriend fiancé fiancée fiance fiancee partner aunt uncle grandmother
			grandma grandfather grandpa niece nephew cousin stepmother stepfather stepsister stepbrother godmother godfather sister-in-law brother-in-law mother-in-law father-in-law
			twin child kid baby friend flatmate roommate housemate neighbour neighbor landlord landlady tenant colleague coworker co-worker teammate boss manager supervisor mentor
			mentee intern trainee student teacher professor tutor coach trainer doctor dentist therapist nurse lawyer accountant advisor adviser assistant secretary designer
			developer engineer architect analyst scientist researcher writer author editor journalist translator consultant contractor freelancer plumber electrician carpenter
			cook chef pilot musician singer artist painter actor actress photographer director founder co-founder cofounder ceo cto cfo coo lead maintainer owner administrator
			admin sponsor investor client customer supplier vendor babysitter nanny cat dog puppy kitten horse rabbit hamster parrot pet

			frau mann tochter sohn mutter mama vater papa schwester bruder freundin freund verlobte verlobter partnerin tante onkel oma großmutter opa großvater nichte neffe
			cousine schwägerin schwager schwiegermutter schwiegervater zwilling kind mitbewohnerin mitbewohner nachbarin nachbar vermieter vermieterin kollegin kollege chefin
			vorgesetzte vorgesetzter mentorin praktikantin praktikant lehrerin lehrer trainerin ärztin arzt zahnärztin zahnarzt anwältin anwalt steuerberater
			assistentin entwicklerin entwickler ingenieurin ingenieur kundin kunde hund katze kater pferd

			femme mari fille fils mère maman père sœur soeur frère copine copain compagne compagnon fiancé tante oncle grand-mère grand-père nièce neveu cousine belle-sœur
			beau-frère belle-mère beau-père jumeau enfant bébé ami amie colocataire voisin voisine propriétaire collègue patron patronne cheffe responsable stagiaire élève
			étudiant étudiante professeur médecin dentiste avocat avocate comptable infirmière ingénieur ingénieure développeur développeuse cliente chat chien

			esposa esposo marido mujer hija hijo madre mamá padre papá hermana hermano novia novio prometida pareja tía tío abuela abuelo sobrina sobrino prima primo cuñada
			cuñado suegra suegro gemelo niño niña bebé amiga amigo compañera compañero vecina vecino casera casero colega jefa jefe gerente becaria alumno alumna estudiante
			profesor profesora médica médico dentista abogada abogado contable enfermera ingeniera ingeniero desarrolladora desarrollador gato gata perro perra caballo`),
		things: layer.Words(`project company firm startup start-up employer team department squad product service microservice app application website site platform system tool library
			framework package module repo repository branch database cluster server host robot bot agent model pipeline api dashboard brand shop store restaurant café cafe bar
			hotel school university college hospital clinic bank charity club band church city town village country region island lake river mountain street house boat ship
			course conference festival campaign initiative programme program

			projekt firma unternehmen arbeitgeber abteilung produkt dienst anwendung webseite plattform werkzeug bibliothek paket datenbank rechner marke laden geschäft kneipe
			schule universität uni hochschule krankenhaus verein kirche stadt dorf land insel fluss berg straße haus boot schiff kurs konferenz

			projet entreprise société boîte employeur équipe département produit logiciel site plateforme outil bibliothèque dépôt serveur marque magasin boutique école
			université hôpital banque association ville village pays île rivière montagne rue maison bateau cours

			proyecto empresa compañía empleador equipo departamento producto servicio aplicación plataforma herramienta biblioteca repositorio servidor marca tienda
			escuela colegio universidad banco asociación ciudad pueblo país isla río montaña calle casa barco curso`),
		noNames: layer.Words(`i i'm a an the this that these those it its he she they we you who what when where which why how there here my our your his her their all some any no none nobody
			everybody everyone someone somebody anyone anybody nothing everything something another one two three both each every many most more other others such same
			and or but so if then because since while although though yes yeah no nope ok okay well also just only even still now today tomorrow yesterday tonight please
			thanks thank hello hi hey dear sorry sure great good bad new old first last next is are was were be been do does did have has had will would can could should
			may might must let lets not in on at to of for from with by about into over after before between under up down out off as than like

			monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september october november december
			montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz mai juni juli oktober dezember
			lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril juin juillet août septembre octobre novembre décembre
			lunes martes miércoles jueves viernes sábado domingo enero febrero marzo mayo junio julio agosto septiembre octubre noviembre diciembre
			spring summer autumn fall winter christmas easter halloween thanksgiving weekend birthday morning evening noon night god internet english german french spanish italian
			portuguese dutch swiss austrian polish russian chinese japanese korean indian american british canadian australian european african asian swedish danish norwegian
			finnish greek turkish arabic hebrew latin irish scottish welsh belgian brazilian mexican ukrainian catholic muslim jewish christian buddhist hindu vegan vegetarian

			ich du er sie es wir ihr mein dein sein unser euer der die das ein eine kein keine dies diese dieser dieses jeder jede jedes alle niemand jemand man keiner
			und oder aber wenn weil dass ob als ja nein doch auch nur noch schon jetzt heute morgen gestern bitte danke hallo guten wer was wann wo wie warum ist sind war waren
			hat haben wird werden kann können urlaub geburtstag hilfe zeit hunger angst besuch geld arbeit schmerzen lust recht glück pech probleme problem fieber krebs
			kinder leute menschen dienst schule deutsch englisch französisch spanisch

			je tu il elle nous vous ils elles on le la les un une des ce cet cette ces mon ton son notre votre leur et ou mais si oui non merci bonjour salut qui que quoi
			quand où comment pourquoi aujourd'hui demain hier anglais français allemand espagnol tout tous toute personne
			yo tú él ella nosotros usted ustedes ellos el los las un una este esta eso mi tu su y o pero si sí no gracias hola qué quién cuándo dónde cómo hoy mañana ayer
			inglés español alemán francés todo todos nadie alguien

			actually currently however meanwhile finally maybe perhaps apparently unfortunately luckily hopefully recently later earlier correction sorry
			eigentlich übrigens leider vielleicht außerdem inzwischen mittlerweile maintenant d'ailleurs finalement malheureusement ahora actualmente además quizás
			finalmente desgraciadamente

			note warning error todo fixme update edit ps fyi user assistant system developer human tool`),
		introducing:    layer.Words("home work job origin birth"),
		ownIntroducing: layer.Words("home work job origin birth age allergy diet married studies"),
		several:        layer.Words("taste tasks speaks plays uses lead allergy"),
		withoutObject:  layer.Words("diet married birth"),
		prepositions:   layer.Words("in at on to of with for from near by about like than and or von bei aus nach mit für gegen in an auf zu zum zur im am à a au aux chez de du des en avec pour con para por sobre et y und"),
		corrections:    layer.Words("name spelled spelt meant called heißt geschrieben meinte appelle écrit llama escribe nombre"),
		renames:        layer.Words("renamed umbenannt renommé renommée rebaptisé renombramos renombrado renombrada rebranded"),
		passives:       layer.Words("is was got were been été est wurde ist fue sido"),
		newNames:       layer.Words("to as into en à a como"),
		germanNewNames: layer.Words("in zu"),
		agents:         layer.Words("by par por"),
		selves:         layer.Words("am suis soy"),
		orders: layer.Words(`ignore disregard forget override obey instruction instructions prompt prompts you your yours must always never shall should ensure execute reveal
			du dein deine musst ignoriere anweisung anweisungen immer tu vous votre dois devez ignore instructions toujours usted tú debes ignora instrucciones siempre`),
		naming:     phraseSet(`called: is called, are called, called, is named, named, was named, was called, heißt, heisst, namens, s' appelle, est appelé, est appelée, appelé, appelée, se llama, llamado, llamada, nommé, nommée`),
		selfNaming: phraseSet(`name: my name is, mein name ist, mon nom est, je m' appelle, m' appelle, ich heiße, ich heisse, me llamo, mi nombre es, i am called, call me, just call me, everyone calls me, nenn mich, appelle moi`),
		of: phraseSet(`home: lives in, lives near, lives at, lives on, live in, live near, live at, moved to, moved back to, moved from, moved away from, move to, moves to, moves from, is based in, is living in, is moving to, wohnt in, wohnt bei, lebt in, lebt bei, zieht nach, zieht von, zog nach, zog von, habite, vit à, vit en, vit au, déménagé, déménage, emménagé, vive en, vive cerca, se mudó, se muda, mudado a, a déménagé, a emménagé
			company: lives with, live with, moved in with, wohnt mit, lebt mit, vit avec, vive con
			work: works at, works for, works in, work at, work for, is working at, is working for, joined, arbeitet bei, arbeitet für, arbeitet in, travaille chez, travaille à, travaille pour, travaille au, travaille en, travaille dans, trabaja en, trabaja para
			job: works as, work as, is working as, arbeitet als, travaille comme, trabaja como, trabaja de
			tasks: works on, works with, is working on, arbeitet an, arbeitet mit, travaille sur, travaille avec, trabaja con
			origin: is from, comes from, come from, grew up in, kommt aus, vient de, vient du, viene de, es de
			birth: was born, is birthday is, birthday is, wurde geboren, hat geburtstag, est né, est née, né, née, nació
			age: turned, turns, wird, cumple
			studies: studies, study, studied, studiert, étudie, estudia
			allergy: is allergic, allergic, ist allergisch, est allergique, es alérgica, es alérgico
			taste: likes, loves, like, love, enjoys, mag, liebt, aime, adore, le gusta, le gustan, le encanta
			taste: hates, dislikes, hate, hasst, déteste, odia
			taste: prefers, prefer, bevorzugt, préfère, prefiere
			diet: is vegan, is vegetarian, ist vegan, ist vegetarier, ist vegetarierin, est végétarien, est végétarienne, es vegano, es vegana, es vegetariana, es vegetariano
			married: is married, ist verheiratet, est marié, est mariée, está casado, está casada
			lead: manages, leads, runs, heads, maintains, handles, approves, owns, reviews, leitet, betreut, führt, verantwortet, dirige, gère, gestiona, lidera, is responsible for, is in charge of, looks after, ist verantwortlich für, ist zuständig für, est responsable de, es responsable de
			reports: reports to, berichtet an, rapporte à, reporta a
			speaks: speaks, spricht, parle, habla
			plays: plays, spielt, joue, juega, toca
			stack: is written in, is built with, is built in, is based on, is coded in, ist geschrieben in, est écrit en, está escrito en
			hosting: runs on, is hosted on, is hosted at, is hosted in, is deployed on, is deployed to, is deployed in, läuft auf, tourne sur, corre en
			uses: uses, depends on, relies on, talks to, benutzt, nutzt, verwendet, utilise, usa, utiliza
			date: launches, ships, starts, ends, is due, goes live, startet, endet, commence, empieza
			place: is located in, is located at, is in, is near, liegt in, se trouve à, está en`),
		ofMe: phraseSet(`home: live in, live near, live at, am living in, moved to, moved back to, moved from, moved away from, am moving to, am based in, are based in, wohne in, lebe in, wohnen in, leben in, ziehe nach, ziehe von, habite à, habite en, habite au, habite, vis à, vis en, habitons, vivons, ai déménagé, avons déménagé, déménage, vivo en, vivimos en, me mudé, nos mudamos
			work: work at, work for, am working at, am working for, joined, arbeite bei, arbeite für, arbeiten bei, travaille chez, travaille à, travaille pour, trabajo en, trabajo para
			job: work as, am working as, arbeite als, travaille comme, trabajo como, trabajo de
			origin: am from, are from, come from, grew up in, was born in, komme aus, viens de, viens du, soy de, vengo de
			studies: study at, studied at, am studying at, studiere in, studiere an, étudie à, estudio en
			diet: am vegan, am vegetarian, bin vegan, bin vegetarier, bin vegetarierin, suis végétarien, suis végétarienne, suis végane, soy vegano, soy vegana, soy vegetariano, soy vegetariana
			allergy: am allergic to, bin allergisch gegen, suis allergique, soy alérgico, soy alérgica`),
		participles: phraseSet(`home: gezogen, umgezogen
			allergy: allergisch`),
	}
	return l
})
